/* pickle.c - tensors of PyTorch's .ckpt, .pt and .bin files, without executing anything. */
/* SPDX-License-Identifier: MIT */
#include "files/pickle.h"

#include "files/bytes.h"
#include "files/zip.h"

#include <stdlib.h>
#include <string.h>

/*
 * The file is a zip archive: NAME/data.pkl describes the objects, NAME/data/KEY holds one storage
 * each. data.pkl is a program for a small stack machine. Python's runs any function such a program
 * names; this one knows a few names and builds only tensors, texts, numbers, tuples, lists and
 * dicts. What it builds beyond tensors is dropped.
 */

#define MAX_PROGRAM_BYTES (16u << 20)
#define MAX_STEPS         (4u << 20)
#define MAX_STACK         (1u << 20)
#define MAX_DEPTH         6 /* of dicts in dicts */

enum kind { OPAQUE, NUMBER, TEXT, TUPLE, LIST, DICT, GLOBAL, STORAGE, TENSOR, MARK };

enum global {
    GLOBAL_REBUILD_TENSOR,
    GLOBAL_REBUILD_PARAMETER,
    GLOBAL_ORDERED_DICT,
    GLOBAL_STORAGE,
    GLOBAL_INERT
};

/* A global's answer is never looked up anywhere: "inert" ones stand for objects that are built and
 * dropped. */
static const struct {
    const char *name;
    enum global global;
    enum dtype dtype; /* of a storage */
} globals[] = {
    {"torch._utils _rebuild_tensor_v2", GLOBAL_REBUILD_TENSOR, 0},
    {"torch._utils _rebuild_tensor", GLOBAL_REBUILD_TENSOR, 0},
    {"torch._utils _rebuild_parameter", GLOBAL_REBUILD_PARAMETER, 0},
    {"collections OrderedDict", GLOBAL_ORDERED_DICT, 0},
    {"torch FloatStorage", GLOBAL_STORAGE, DTYPE_F32},
    {"torch HalfStorage", GLOBAL_STORAGE, DTYPE_F16},
    {"torch BFloat16Storage", GLOBAL_STORAGE, DTYPE_BF16},
    {"torch DoubleStorage", GLOBAL_STORAGE, DTYPE_F64},
    {"torch LongStorage", GLOBAL_STORAGE, DTYPE_I64},
    {"torch IntStorage", GLOBAL_STORAGE, DTYPE_I32},
    {"torch ByteStorage", GLOBAL_STORAGE, DTYPE_U8},
    {"torch BoolStorage", GLOBAL_STORAGE, DTYPE_U8},
    {"torch Size", GLOBAL_INERT, 0},
    {"torch device", GLOBAL_INERT, 0},
    {"torch float32", GLOBAL_INERT, 0},
    {"torch float16", GLOBAL_INERT, 0},
    {"torch bfloat16", GLOBAL_INERT, 0},
    {"_codecs encode", GLOBAL_INERT, 0},
    {"numpy dtype", GLOBAL_INERT, 0},
    {"numpy.core.multiarray scalar", GLOBAL_INERT, 0},
    {"numpy._core.multiarray scalar", GLOBAL_INERT, 0},
    {"pytorch_lightning.callbacks.model_checkpoint ModelCheckpoint", GLOBAL_INERT,
     0}, /* SD 1.4's own file */
};

struct list; /* of a tuple, list or dict (key, value, key, value) */

struct value {
    enum kind kind;
    int32_t global; /* GLOBAL: line of globals; STORAGE: the same */
    union {
        int64_t number;
        struct {
            const char *text;
            size_t length;
        } text;
        struct {
            const struct zip_entry *entry;
            uint64_t count;
        } storage;
        struct list *list;
        struct weight *tensor;
    } as;
};

struct list {
    struct value *items;
    size_t n_items, room;
    struct list *next; /* of all lists, to free them */
    bool visited;      /* by collect: a dict may not hold itself */
};

struct machine {
    struct weights *w;
    const char *path;
    size_t file_bytes;
    struct zip zip;
    const char *root; /* name of the folder in the archive, with its slash */
    size_t root_bytes;
    struct bytes in;
    struct value *stack;
    size_t n_stack, stack_room;
    struct value *memo;
    size_t n_memo;
    size_t n_steps;
    size_t copied_bytes; /* of tensors that do not lie in rows */
    struct list *lists;
    struct dk_error *err;
};

static bool no_memory(const struct machine *m)
{
    return dk_fail(m->err, DK_ERROR_MEMORY, "%s: out of memory while reading its tensor list",
                   m->path);
}

static bool damaged(const struct machine *m, const char *what)
{
    return dk_fail(m->err, DK_ERROR_FORMAT,
                   "%s: data.pkl is damaged at byte %zu: %s; download it again", m->path, m->in.at,
                   what);
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool push(struct machine *m, struct value value)
{
    if (m->n_stack == m->stack_room) {
        size_t room = m->stack_room ? 2 * m->stack_room : 256;
        struct value *stack = room <= MAX_STACK ? realloc(m->stack, room * sizeof *stack) : NULL;
        if (!stack) return no_memory(m);
        m->stack = stack;
        m->stack_room = room;
    }
    m->stack[m->n_stack++] = value;
    return true;
}

static bool push_kind(struct machine *m, enum kind kind)
{
    return push(m, (struct value){.kind = kind});
}

static bool push_number(struct machine *m, int64_t number)
{
    return push(m, (struct value){.kind = NUMBER, .as.number = number});
}

/* The top of the stack, taken off. An empty stack gives MARK, which nothing accepts. */
static struct value pop(struct machine *m)
{
    if (m->n_stack == 0) return (struct value){.kind = MARK};
    return m->stack[--m->n_stack];
}

static struct list *new_list(struct machine *m)
{
    struct list *list = calloc(1, sizeof *list);
    if (!list) {
        no_memory(m);
        return NULL;
    }
    list->next = m->lists;
    m->lists = list;
    return list;
}

static bool append(struct machine *m, struct list *list, struct value value)
{
    if (value.kind == MARK) return damaged(m, "a mark as a value");
    if (list->n_items == list->room) {
        size_t room = list->room ? 2 * list->room : 4;
        struct value *items = realloc(list->items, room * sizeof *items);
        if (!items) return no_memory(m);
        list->items = items;
        list->room = room;
    }
    list->items[list->n_items++] = value;
    return true;
}

static bool push_list(struct machine *m, enum kind kind)
{
    struct list *list = new_list(m);
    return list && push(m, (struct value){.kind = kind, .as.list = list});
}

/* Makes a tuple of the n values on top of the stack. */
static bool push_tuple(struct machine *m, size_t n)
{
    struct list *list = new_list(m);
    if (!list) return false;
    if (n > m->n_stack) return damaged(m, "the stack is empty");
    for (size_t i = m->n_stack - n; i < m->n_stack; i++)
        if (!append(m, list, m->stack[i])) return false;
    m->n_stack -= n;
    return push(m, (struct value){.kind = TUPLE, .as.list = list});
}

/* Values above the topmost mark, which is left below them; SIZE_MAX when there is no mark. */
static size_t above_mark(const struct machine *m)
{
    for (size_t i = m->n_stack; i > 0; i--)
        if (m->stack[i - 1].kind == MARK) return m->n_stack - i;
    return SIZE_MAX;
}

static struct value item(const struct value *v, size_t index)
{
    bool has = (v->kind == TUPLE || v->kind == LIST) && index < v->as.list->n_items;
    return has ? v->as.list->items[index] : (struct value){.kind = MARK};
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool is_text(const struct value *v, const char *text)
{
    return v->kind == TEXT && v->as.text.length == strlen(text) &&
           memcmp(v->as.text.text, text, v->as.text.length) == 0;
}

/* A persistent id is ("storage", class, key, location, count): the entry data/KEY. */
static bool push_storage(struct machine *m)
{
    struct value id = pop(m), word = item(&id, 0), class = item(&id, 1), key = item(&id, 2),
                 count = item(&id, 4);
    if (!is_text(&word, "storage") || class.kind != GLOBAL ||
        globals[class.global].global != GLOBAL_STORAGE || key.kind != TEXT ||
        count.kind != NUMBER || count.as.number < 0)
        return damaged(m, "a persistent id that is no storage");
    char name[1024];
    size_t n = m->root_bytes;
    if (key.as.text.length > 64) return damaged(m, "a storage with an endless key");
    memcpy(name, m->root, n);
    memcpy(name + n, "data/", 5);
    memcpy(name + n + 5, key.as.text.text, key.as.text.length);
    const struct zip_entry *entry = zip_find(&m->zip, name, n + 5 + key.as.text.length);
    size_t bytes = (size_t)weights_dtype_bytes(globals[class.global].dtype);
    if (!entry)
        return dk_fail(m->err, DK_ERROR_FORMAT,
                       "%s: the storage data/%.*s is not in the archive: download it again",
                       m->path, (int)key.as.text.length, key.as.text.text);
    if ((uint64_t)count.as.number > entry->size_bytes / bytes)
        return dk_fail(m->err, DK_ERROR_FORMAT,
                       "%s: the storage data/%.*s should hold %lld values, it has %zu bytes",
                       m->path, (int)key.as.text.length, key.as.text.text,
                       (long long)count.as.number, entry->size_bytes);
    return push(m, (struct value){.kind = STORAGE,
                                  .global = class.global,
                                  .as.storage = {entry, (uint64_t)count.as.number}});
}

/* Values in order of rows, whatever the strides; last is known to lie in the storage. */
static bool copy_strided(struct machine *m, struct weight *w, const int64_t stride[TENSOR_MAX_RANK])
{
    size_t bytes = (size_t)weights_dtype_bytes(w->dtype), n = weights_value_count(w);
    m->copied_bytes += n * bytes;
    if (m->copied_bytes > m->file_bytes) return damaged(m, "more tensors than the file has bytes");
    unsigned char *copy = weights_own(m->w, n * bytes, m->err);
    if (!copy) return false;
    int64_t index[TENSOR_MAX_RANK] = {0};
    for (size_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < w->rank; d++) at += index[d] * stride[d];
        memcpy(copy + i * bytes, (const unsigned char *)w->data + (size_t)at * bytes, bytes);
        for (int d = w->rank - 1; d >= 0 && ++index[d] == w->dim[d]; d--) index[d] = 0;
    }
    w->data = copy;
    return true;
}

/*
 * What is wrong with a tensor's sizes, strides and offset in a storage of count values, or NULL.
 * *dense tells whether the strides are those of plain rows.
 */
static const char *find_fault(const struct weight *w, const int64_t stride[TENSOR_MAX_RANK],
                              uint64_t offset, uint64_t count, bool *dense)
{
    uint64_t last = offset, values = 1; /* last is the index of the last value */
    *dense = true;
    for (int d = w->rank - 1; d >= 0; d--) {
        uint64_t size = (uint64_t)w->dim[d], step = (uint64_t)stride[d];
        if (w->dim[d] <= 0) return "has a dimension of size 0 or less";
        if (size > count / values) return "has more values than its storage";
        if (size > 1 && (stride[d] < 0 || step > count / (size - 1))) return "leaves its storage";
        if (size > 1 && step != values) *dense = false;
        if (size > 1) last += (size - 1) * step;
        values *= size;
    }
    return last >= count ? "leaves its storage" : NULL;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks) */
static bool push_tensor(struct machine *m, const struct value *args)
{
    struct value storage = item(args, 0), offset = item(args, 1), size = item(args, 2),
                 stride = item(args, 3);
    if (storage.kind != STORAGE || offset.kind != NUMBER || size.kind != TUPLE ||
        stride.kind != TUPLE || offset.as.number < 0 ||
        (uint64_t)offset.as.number > storage.as.storage.count)
        return damaged(m, "a tensor that is none");
    size_t rank = size.as.list->n_items;
    if (rank > TENSOR_MAX_RANK)
        return dk_fail(m->err, DK_ERROR_UNSUPPORTED,
                       "%s: a tensor has %zu dimensions, expected at most %d", m->path, rank,
                       TENSOR_MAX_RANK);
    struct weight *w = weights_own(m->w, sizeof *w, m->err);
    if (!w) return false;
    int64_t strides[TENSOR_MAX_RANK] = {0};
    w->dtype = globals[storage.global].dtype;
    w->rank = (int)rank;
    for (size_t d = 0; d < rank; d++) {
        struct value one = item(&size, d), step = item(&stride, d);
        if (one.kind != NUMBER || step.kind != NUMBER) return damaged(m, "a tensor that is none");
        w->dim[d] = one.as.number;
        strides[d] = step.as.number;
    }
    bool dense;
    w->name = find_fault(w, strides, (uint64_t)offset.as.number, storage.as.storage.count, &dense);
    if (w->name) /* told once its name is known; what is never named is never used */
        return push(m, (struct value){.kind = TENSOR, .as.tensor = w});
    w->data = storage.as.storage.entry->data +
              (size_t)offset.as.number * (size_t)weights_dtype_bytes(w->dtype);
    if (!dense && !copy_strided(m, w, strides)) return false;
    return push(m, (struct value){.kind = TENSOR, .as.tensor = w});
}

/* ---- the machine ----------------------------------------------------------------------------- */

static bool push_text(struct machine *m, uint64_t length)
{
    const char *text = (const char *)bytes_take(&m->in, length);
    if (!text) return damaged(m, "it ends in a text");
    return push(m, (struct value){.kind = TEXT, .as.text = {text, (size_t)length}});
}

/* A line of text; NULL at the end of the program. */
static const char *take_line(struct machine *m, size_t *length)
{
    const char *start = (const char *)m->in.data + m->in.at;
    const char *end = memchr(start, '\n', m->in.size_bytes - m->in.at);
    if (!end) return NULL;
    *length = (size_t)(end - start);
    m->in.at += *length + 1;
    return start;
}

static bool push_global(struct machine *m)
{
    size_t n = 0, k = 0;
    const char *module = take_line(m, &n), *name = module ? take_line(m, &k) : NULL;
    if (!name) return damaged(m, "it ends in a name");
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        const char *known = globals[i].name;
        if (strlen(known) != n + 1 + k || memcmp(known, module, n) != 0 || known[n] != ' ' ||
            memcmp(known + n + 1, name, k) != 0)
            continue;
        return push(m, (struct value){.kind = GLOBAL, .global = (int32_t)i});
    }
    char shown[100];
    size_t length = 0;
    for (size_t i = 0; i < n + 1 + k && length < sizeof shown - 1; i++) {
        char c = i < n ? module[i] : i == n ? '.' : name[i - n - 1];
        shown[length++] = c < 0x20 || c > 0x7e ? '?' : c; /* the terminal must not obey it */
    }
    shown[length] = 0;
    return dk_fail(m->err, DK_ERROR_UNSUPPORTED,
                   "%s: asks to run \"%s\", which is not needed to hold weights and is never run; "
                   "get the model as "
                   "safetensors",
                   m->path, shown);
}

static bool reduce(struct machine *m)
{
    struct value args = pop(m), callee = pop(m), first = item(&args, 0);
    if (callee.kind != GLOBAL || args.kind != TUPLE)
        return damaged(m, "a call of what is no function");
    switch (globals[callee.global].global) {
    case GLOBAL_REBUILD_TENSOR:
        return push_tensor(m, &args);
    case GLOBAL_REBUILD_PARAMETER:
        return first.kind == TENSOR ? push(m, first) : damaged(m, "a parameter of no tensor");
    case GLOBAL_ORDERED_DICT:
        return push_list(m, DICT);
    case GLOBAL_STORAGE:
        return damaged(m, "a storage made by a call");
    case GLOBAL_INERT:
        break;
    }
    return push_kind(m, OPAQUE);
}

/* Puts the n values on top of the stack into the list or dict below them. */
static bool extend(struct machine *m, size_t n, enum kind kind, bool has_mark)
{
    size_t below = n + (has_mark ? 1 : 0);
    if (n == SIZE_MAX || below >= m->n_stack) return damaged(m, "the stack is empty");
    struct value target = m->stack[m->n_stack - below - 1];
    if (target.kind == kind && kind == DICT && n % 2 != 0)
        return damaged(m, "a key without a value");
    if (target.kind != kind && target.kind != OPAQUE)
        return damaged(m, "items for what holds none");
    for (size_t i = m->n_stack - n; target.kind == kind && i < m->n_stack; i++)
        if (!append(m, target.as.list, m->stack[i])) return false;
    m->n_stack -= below;
    return true;
}

/* Python numbers its memos one by one, so a number beyond the steps done so far is forged. */
static bool memorise(struct machine *m, uint64_t index)
{
    if (index > m->n_steps || m->n_stack == 0) return damaged(m, "a memo out of order");
    if (index >= m->n_memo) {
        size_t n = (size_t)index < 256 ? 256 : 2 * (size_t)index;
        struct value *memo = realloc(m->memo, n * sizeof *memo);
        if (!memo) return no_memory(m);
        for (size_t i = m->n_memo; i < n; i++) memo[i] = (struct value){.kind = MARK};
        m->memo = memo;
        m->n_memo = n;
    }
    m->memo[index] = m->stack[m->n_stack - 1];
    return true;
}

static bool recall(struct machine *m, uint64_t index)
{
    if (index >= m->n_memo || m->memo[index].kind == MARK) return damaged(m, "an unknown memo");
    return push(m, m->memo[index]);
}

/* LONG1: a little-endian number of two's complement. */
static bool push_long(struct machine *m)
{
    uint64_t n = bytes_number(&m->in, 1), bits = 0;
    const unsigned char *p = bytes_take(&m->in, n);
    if (!p) return damaged(m, "it ends in a number");
    if (n > 8) return push_kind(m, OPAQUE);
    for (uint64_t i = 0; i < 8; i++) {
        unsigned char sign = n > 0 && p[n - 1] & 0x80 ? 0xff : 0;
        bits |= (uint64_t)(i < n ? p[i] : sign) << 8 * i;
    }
    int64_t number;
    memcpy(&number, &bits, sizeof number);
    return push_number(m, number);
}

static bool build(struct machine *m)
{
    pop(m);
    enum kind kind = m->n_stack ? m->stack[m->n_stack - 1].kind : MARK;
    /* The state of an OrderedDict is its _metadata attribute, which is dropped. */
    return kind == DICT || kind == OPAQUE || damaged(m, "a state for what has none");
}

static bool make_marked_tuple(struct machine *m)
{
    size_t n = above_mark(m);
    if (n == SIZE_MAX || !push_tuple(m, n)) return damaged(m, "a tuple without a mark");
    struct value tuple = pop(m);
    m->n_stack--; /* the mark */
    return push(m, tuple);
}

/* Opcodes by their characters in CPython's pickle.py. */
static bool step(struct machine *m, unsigned op)
{
    switch (op) {
    case 0x80:
        return bytes_number(&m->in, 1) <= 5 || damaged(m, "an unknown protocol"); /* PROTO */
    case 'c':
        return push_global(m);
    case '(':
        return push_kind(m, MARK);
    case ')':
        return push_list(m, TUPLE);
    case ']':
        return push_list(m, LIST);
    case '}':
        return push_list(m, DICT);
    case 't':
        return make_marked_tuple(m);
    case 0x85:
        return push_tuple(m, 1);
    case 0x86:
        return push_tuple(m, 2);
    case 0x87:
        return push_tuple(m, 3);
    case 'N':
        return push_kind(m, OPAQUE);
    case 0x88:
        return push_number(m, 1); /* NEWTRUE */
    case 0x89:
        return push_number(m, 0); /* NEWFALSE */
    case 'J':
        return push_number(m, (int32_t)bytes_u32(&m->in));
    case 'K':
        return push_number(m, (int64_t)bytes_number(&m->in, 1));
    case 'M':
        return push_number(m, (int64_t)bytes_number(&m->in, 2));
    case 0x8a:
        return push_long(m);
    case 'G':
        return bytes_take(&m->in, 8) ? push_kind(m, OPAQUE) : damaged(m, "it ends in a number");
    case 'X':
    case 'T':
        return push_text(m, bytes_u32(&m->in));
    case 'U':
    case 0x8c:
        return push_text(m, bytes_number(&m->in, 1));
    case 'q':
        return memorise(m, bytes_number(&m->in, 1));
    case 'r':
        return memorise(m, bytes_u32(&m->in));
    case 'h':
        return recall(m, bytes_number(&m->in, 1));
    case 'j':
        return recall(m, bytes_u32(&m->in));
    case 'Q':
        return push_storage(m);
    case 'R':
        return reduce(m);
    case 'b':
        return build(m);
    case 's':
        return extend(m, 2, DICT, false);
    case 'u':
        return extend(m, above_mark(m), DICT, true);
    case 'a':
        return extend(m, 1, LIST, false);
    case 'e':
        return extend(m, above_mark(m), LIST, true);
    default:
        break;
    }
    return dk_fail(m->err, DK_ERROR_UNSUPPORTED,
                   "%s: data.pkl uses opcode 0x%02x at byte %zu, which weights do not need; get "
                   "the model as safetensors",
                   m->path, op, m->in.at - 1);
}

static bool run(struct machine *m, struct value *answer)
{
    for (; m->n_steps < MAX_STEPS; m->n_steps++) {
        unsigned op = (unsigned)bytes_number(&m->in, 1);
        if (m->in.failed) return damaged(m, "it ends without a stop");
        if (op == '.') {
            *answer = pop(m);
            return true;
        }
        if (!step(m, op)) return false;
        if (m->in.failed) return damaged(m, "it ends in an instruction");
    }
    return damaged(m, "it goes on without end");
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* Adds the tensors of a dict, those of dicts in it with their keys before; other values are none of
 * ours. */
static bool collect(struct machine *m, struct list *dict, const char *prefix, int depth)
{
    if (depth > MAX_DEPTH || dict->visited) return damaged(m, "dicts nest without end");
    dict->visited = true;
    for (size_t i = 0; i + 1 < dict->n_items; i += 2) {
        struct value key = dict->items[i], value = dict->items[i + 1];
        if (key.kind != TEXT || (value.kind != TENSOR && value.kind != DICT)) continue;
        char name[2 * WEIGHTS_MAX_NAME];
        size_t before = strlen(prefix), n = key.as.text.length;
        if (before + n > WEIGHTS_MAX_NAME || memchr(key.as.text.text, 0, n))
            return damaged(m, "an impossible name");
        memcpy(name, prefix, before);
        memcpy(name + before, key.as.text.text, n);
        memcpy(name + before + n, ".", 2);
        if (value.kind == DICT && !collect(m, value.as.list, name, depth + 1)) return false;
        if (value.kind == DICT) continue;
        struct weight weight = *value.as.tensor;
        const char *fault = weight.data ? NULL : weight.name;
        weight.name = weights_own_name(m->w, name, before + n, NULL, m->err);
        if (!weight.name) return false;
        if (fault && weight.rank == 1 && weight.dim[0] == 0 && weights_is_marker(weight.name)) {
            if (!weights_add_metadata(m->w, weight.name, "true", m->err)) return false;
            continue;
        }
        if (fault)
            return dk_fail(m->err, DK_ERROR_FORMAT, "%s: tensor %s %s", m->path, weight.name,
                           fault);
        if (!weights_add(m->w, &weight, m->err)) return false;
    }
    return true;
}

/* A training program's file has the weights under state_dict and much else beside. */
static bool collect_answer(struct machine *m, const struct value *answer)
{
    if (answer->kind == TENSOR) return damaged(m, "one tensor without a name");
    if (answer->kind != DICT) return damaged(m, "the object is not a dict of tensors");
    struct list *dict = answer->as.list;
    for (size_t i = 0; i + 1 < dict->n_items; i += 2)
        if (is_text(&dict->items[i], "state_dict") && dict->items[i + 1].kind == DICT)
            return collect(m, dict->items[i + 1].as.list, "", 0);
    return collect(m, dict, "", 0);
}

static const struct zip_entry *find_program(struct machine *m)
{
    static const char end[] = "data.pkl";
    size_t n = sizeof end - 1;
    for (size_t i = 0; i < m->zip.n_entries; i++) {
        const struct zip_entry *e = &m->zip.entries[i];
        if (e->name_bytes < n || memcmp(e->name + e->name_bytes - n, end, n) != 0) continue;
        m->root = e->name;
        m->root_bytes = e->name_bytes - n;
        if (m->root_bytes == 0 || m->root[m->root_bytes - 1] == '/') return e;
    }
    return NULL;
}

/* Files of big-endian machines say so; there are none to be met. */
static bool check_order(struct machine *m)
{
    char name[1024];
    memcpy(name, m->root, m->root_bytes);
    memcpy(name + m->root_bytes, "byteorder", 9);
    const struct zip_entry *e = zip_find(&m->zip, name, m->root_bytes + 9);
    if (!e || (e->size_bytes == 6 && memcmp(e->data, "little", 6) == 0)) return true;
    return dk_fail(m->err, DK_ERROR_UNSUPPORTED,
                   "%s: was written on a big-endian machine, expected little-endian", m->path);
}

static bool read_archive(struct machine *m)
{
    const struct zip_entry *program = find_program(m);
    if (!program)
        return dk_fail(m->err, DK_ERROR_FORMAT,
                       "%s: a zip archive without data.pkl; is it a PyTorch file?", m->path);
    if (program->size_bytes > MAX_PROGRAM_BYTES)
        return dk_fail(m->err, DK_ERROR_FORMAT,
                       "%s: data.pkl has %zu bytes, at most %u are allowed", m->path,
                       program->size_bytes, MAX_PROGRAM_BYTES);
    if (!check_order(m)) return false;
    m->in = (struct bytes){.data = program->data, .size_bytes = program->size_bytes};
    struct value answer = {.kind = MARK};
    return run(m, &answer) && collect_answer(m, &answer);
}

/* PyTorch before 1.6 wrote a bare pickle, which starts with protocol 2 and a long magic number. */
static bool is_old(const struct map *map)
{
    return map->size_bytes >= 4 && memcmp(map->data, "\x80\x02\x8a\x0a", 4) == 0;
}

bool pickle_is(const struct map *map)
{
    return zip_is(map) || is_old(map);
}

bool pickle_read(struct weights *w, const char *path, const struct map *map, struct dk_error *err)
{
    if (is_old(map))
        return dk_fail(
            err, DK_ERROR_UNSUPPORTED,
            "%s: is of PyTorch before 1.6, which is not read; get the model as safetensors", path);
    struct machine m = {.w = w, .path = path, .file_bytes = map->size_bytes, .err = err};
    bool ok = zip_open(&m.zip, path, map, err) && read_archive(&m);
    for (struct list *list = m.lists, *next; list; list = next) {
        next = list->next;
        free(list->items);
        free(list);
    }
    free(m.stack);
    free(m.memo);
    zip_close(&m.zip);
    return ok;
}
