/* convert.c - a model from one kind of file into another. */
/* SPDX-License-Identifier: MIT */
#include "files/create.h"
#include "files/header.h"
#include "files/json.h"
#include "files/map.h"
#include "files/pack.h"
#include "files/weights.h"
#include "kernels/kernels.h"
#include "pipeline/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * The tensors of one file or of the parts of a folder become one list, the header is written from
 * it, then the values follow tensor by tensor through a small buffer: a model is never in memory as
 * a whole.
 */

#define PIECE_VALUES        65536u /* a multiple of every block */
#define RELEASE_BYTES       ((size_t)64 << 20)
#define MAX_CONFIG_BYTES    (1u << 20)
#define MAX_CONFIG_DEPTH    64
#define MAX_TOKENIZER_BYTES (4u << 20)
#define CLIP_MERGES         48894u

static const char *const part_names[] = {"unet", "vae", "text_encoder", "text_encoder_2"};
#define N_PARTS (sizeof part_names / sizeof *part_names)

/* Text of a diffusers folder that says what shapes cannot; kept under its path, since a single file
 * has no folder. */
static const char *const configs[] = {"model_index.json",
                                      "darkroom.json",
                                      "unet/config.json",
                                      "vae/config.json",
                                      "text_encoder/config.json",
                                      "text_encoder_2/config.json",
                                      "scheduler/scheduler_config.json"};
#define N_CONFIGS (sizeof configs / sizeof *configs)

struct conversion {
    const char *in, *out;
    const struct dk_convert_options *options;
    bool to_gguf, keep_dtype;
    enum dtype dtype;
    struct weights *sources[N_PARTS]; /* one file, or the parts of a folder */
    const char *prefixes[N_PARTS];    /* what the names of a source get before them */
    size_t n_sources;
    struct header_tensor *tensors; /* names owned */
    const struct weight **from;    /* [n_tensors] */
    size_t n_tensors, total_bytes, done_bytes, kept_bytes;
    struct dk_texts metadata;
    struct kernels kernels;
    struct dk_error *err;
};

static bool no_memory(const struct conversion *c)
{
    return dk_fail(c->err, DK_ERROR_MEMORY, "%s: out of memory for its tensor list", c->in);
}

static bool join(char *out, size_t size, const char *folder, const char *name)
{
    int n = snprintf(out, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool read_options(struct conversion *c)
{
    const char *format = c->options->format;
    if (!format)
        format = ends_with(c->out, ".gguf")          ? "gguf"
                 : ends_with(c->out, ".safetensors") ? "safetensors"
                                                     : NULL;
    if (!format)
        return dk_fail(c->err, DK_ERROR_ARGUMENT,
                       "%s: the name does not tell the format, expected .safetensors or .gguf",
                       c->out);
    c->to_gguf = strcmp(format, "gguf") == 0;
    if (!c->to_gguf && strcmp(format, "safetensors") != 0)
        return dk_fail(c->err, DK_ERROR_ARGUMENT,
                       "\"%s\" is no format to convert to, expected safetensors or gguf", format);
    c->keep_dtype = c->options->dtype == NULL;
    for (int d = 0; !c->keep_dtype && d < N_DTYPES; d++) {
        if (strcmp(weights_dtype_name((enum dtype)d), c->options->dtype) != 0 ||
            !pack_can((enum dtype)d))
            continue;
        c->dtype = (enum dtype)d;
        if (weights_dtype_block(c->dtype) == 1 || c->to_gguf) return true;
        return dk_fail(c->err, DK_ERROR_ARGUMENT,
                       "safetensors cannot hold %s, expected f32, f16 or bf16, or a .gguf file",
                       c->options->dtype);
    }
    return c->keep_dtype ||
           dk_fail(c->err, DK_ERROR_ARGUMENT,
                   "\"%s\" is no type to convert to, expected f32, f16, bf16, q8_0, q4_0 or q4_k",
                   c->options->dtype);
}

/* ---- what there is --------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool add_source(struct conversion *c, const char *path, const char *prefix)
{
    struct weights *w = weights_open(path, c->err);
    if (!w) return false;
    c->sources[c->n_sources] = w;
    c->prefixes[c->n_sources++] = prefix;
    return true;
}

/* A model folder has a folder for each part; anything else is one source with the names it has. */
static bool open_sources(struct conversion *c)
{
    for (size_t i = 0; i < N_PARTS; i++) {
        char path[4096];
        if (!join(path, sizeof path, c->in, part_names[i]) || !is_folder(path)) continue;
        if (!add_source(c, path, part_names[i])) return false;
    }
    return c->n_sources > 0 || add_source(c, c->in, "");
}

/* Takes copies of both strings; a key that is there already stays as it is. */
static bool add_metadata(struct conversion *c, const char *keyword, const char *text)
{
    struct dk_texts *m = &c->metadata;
    for (size_t i = 0; i < m->n_items; i++)
        if (strcmp(m->items[i].keyword, keyword) == 0) return true;
    struct dk_text *items = realloc(m->items, (m->n_items + 1) * sizeof *items);
    if (!items) return no_memory(c);
    m->items = items;
    struct dk_text *item = &items[m->n_items++];
    *item = (struct dk_text){malloc(strlen(keyword) + 1), malloc(strlen(text) + 1)};
    if (!item->keyword || !item->text) return no_memory(c);
    strcpy(item->keyword, keyword);
    strcpy(item->text, text);
    return true;
}

static bool add_json(struct conversion *c, const char *name, const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    bool ok = text ? add_metadata(c, name, text) : no_memory(c);
    free(text);
    return ok;
}

/* What stands beside a single file is said under the same names as what lies in a folder. */
static bool add_beside(struct conversion *c)
{
    static const char *const names[][2] = {{"unet", "unet/config.json"},
                                           {"vae", "vae/config.json"},
                                           {"text_encoder", "text_encoder/config.json"},
                                           {"text_encoder_2", "text_encoder_2/config.json"},
                                           {"scheduler", "scheduler/scheduler_config.json"}};
    json_t *beside;
    if (!config_read_beside(c->in, &beside, c->err)) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof names / sizeof *names; i++) {
        const json_t *json = config_beside_part(beside, names[i][0]);
        if (json) ok = add_json(c, names[i][1], json);
    }
    json_decref(beside);
    return ok;
}

static bool add_config(struct conversion *c, const char *name)
{
    char path[4096];
    struct stat st;
    if (!join(path, sizeof path, c->in, name) || stat(path, &st) != 0) return true;
    json_t *json = json_object_read(path, MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, c->err);
    if (!json) return false;
    bool ok = add_json(c, name, json);
    json_decref(json);
    return ok;
}

static bool add_text_file(struct conversion *c, const char *name)
{
    char path[4096];
    struct stat st;
    struct map map;
    if (!join(path, sizeof path, c->in, name) || stat(path, &st) != 0) return true;
    if (!map_open(&map, path, c->err)) return false;
    char *text = map.size_bytes <= MAX_TOKENIZER_BYTES ? malloc(map.size_bytes + 1) : NULL;
    if (text) {
        memcpy(text, map.data, map.size_bytes);
        text[map.size_bytes] = 0;
    }
    bool ok = text ? add_metadata(c, name, text) : no_memory(c);
    free(text);
    map_close(&map);
    return ok;
}

/* CLIP's own tokenizer is built in; a smaller vocabulary may be another one and goes along. */
static bool is_full_tokenizer(const struct conversion *c, const char *folder)
{
    char name[64], path[4096];
    struct map map;
    snprintf(name, sizeof name, "%s/merges.txt", folder);
    if (!join(path, sizeof path, c->in, name) || !map_open(&map, path, NULL)) return true;
    size_t n_lines = 0;
    for (size_t i = 0; i < map.size_bytes; i++) n_lines += map.data[i] == '\n';
    map_close(&map);
    return n_lines >= CLIP_MERGES;
}

static bool add_tokenizers(struct conversion *c)
{
    static const char *const folders[] = {"tokenizer", "tokenizer_2"};
    static const char *const files[] = {"vocab.json", "merges.txt", "tokenizer_config.json",
                                        "special_tokens_map.json"};
    for (size_t t = 0; t < 2; t++) {
        if (is_full_tokenizer(c, folders[t])) continue;
        for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
            char name[64];
            snprintf(name, sizeof name, "%s/%s", folders[t], files[f]);
            if (!add_text_file(c, name)) return false;
        }
    }
    return true;
}

static bool collect_metadata(struct conversion *c)
{
    if (!is_folder(c->in) && !add_beside(c)) return false;
    for (size_t s = 0; s < c->n_sources; s++)
        for (size_t i = 0; i < weights_metadata_count(c->sources[s]); i++) {
            const struct dk_text *text = weights_metadata_at(c->sources[s], i);
            if (!add_metadata(c, text->keyword, text->text)) return false;
        }
    for (size_t i = 0; i < N_CONFIGS && is_folder(c->in); i++)
        if (!add_config(c, configs[i])) return false;
    if (is_folder(c->in) && !add_tokenizers(c)) return false;
    /* PyTorch's loader looks for this key. */
    return c->to_gguf || add_metadata(c, "format", "pt");
}

/* ---- what it becomes ------------------------------------------------------------------------- */

static bool is_float(enum dtype dtype)
{
    return dtype != DTYPE_I64 && dtype != DTYPE_I32 && dtype != DTYPE_U8;
}

/*
 * The type a tensor gets. Matrices are quantised if their rows fill blocks; what is small or
 * sensitive (norms, biases, embeddings, convolutions) stays f16. A row that fills no block of 256
 * is still good for blocks of 32. A type with a scale beside it is not written: f16.
 */
static enum dtype target_dtype(const struct conversion *c, const struct weight *w)
{
    enum dtype dtype = c->keep_dtype ? w->dtype : c->dtype;
    if (!is_float(w->dtype)) return w->dtype;
    if (c->keep_dtype && w->scale > 0) return DTYPE_F16;
    bool can_keep =
        !c->keep_dtype || (c->to_gguf ? w->dtype != DTYPE_F8_E4M3 && w->dtype != DTYPE_F8_E5M2
                                      : weights_dtype_block(w->dtype) == 1);
    if (!can_keep) return DTYPE_F16;
    if (c->keep_dtype || weights_dtype_block(dtype) == 1) return dtype;
    bool is_matrix = w->rank == 2 && w->dim[0] > 1 && !strstr(w->name, "embed");
    if (is_matrix && w->dim[1] % weights_dtype_block(dtype) == 0) return dtype;
    return is_matrix && w->dim[1] % weights_dtype_block(DTYPE_Q8_0) == 0 ? DTYPE_Q8_0 : DTYPE_F16;
}

static bool add_tensor(struct conversion *c, const struct weight *w, const char *prefix)
{
    size_t prefix_bytes = strlen(prefix), name_bytes = strlen(w->name);
    char *name = malloc(prefix_bytes + 1 + name_bytes + 1);
    if (!name) return no_memory(c);
    memcpy(name, prefix, prefix_bytes);
    if (prefix_bytes) name[prefix_bytes++] = '.';
    memcpy(name + prefix_bytes, w->name, name_bytes + 1);
    struct header_tensor *t = &c->tensors[c->n_tensors];
    *t = (struct header_tensor){.name = name, .dtype = target_dtype(c, w), .rank = w->rank};
    struct weight sized = *w;
    sized.dtype = t->dtype;
    memcpy(t->dim, w->dim, sizeof t->dim);
    t->size_bytes = weights_byte_count(&sized);
    c->total_bytes += t->size_bytes;
    c->from[c->n_tensors++] = w;
    return true;
}

/* Types of more bytes come first, so that every tensor begins at a multiple of its element size. */
static bool collect_tensors(struct conversion *c)
{
    size_t n = 0;
    for (size_t s = 0; s < c->n_sources; s++) n += weights_count(c->sources[s]);
    c->tensors = calloc(n + 1, sizeof *c->tensors);
    c->from = calloc(n + 1, sizeof *c->from);
    if (!c->tensors || !c->from) return no_memory(c);
    for (int bytes = 8; bytes >= 0; bytes--)
        for (size_t s = 0; s < c->n_sources; s++)
            for (size_t i = 0; i < weights_count(c->sources[s]); i++) {
                const struct weight *w = weights_at(c->sources[s], i);
                enum dtype dtype = target_dtype(c, w);
                int unit = weights_dtype_block(dtype) > 1 ? 0 : weights_dtype_bytes(dtype);
                if (unit == bytes && !add_tensor(c, w, c->prefixes[s])) return false;
            }
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool report(struct conversion *c, size_t bytes)
{
    const struct dk_convert_options *o = c->options;
    c->done_bytes += bytes;
    c->kept_bytes += bytes;
    if (c->kept_bytes >= RELEASE_BYTES) { /* what is read and written need not stay in memory */
        for (size_t i = 0; i < c->n_sources; i++) weights_release(c->sources[i]);
        c->kept_bytes = 0;
    }
    if (o->progress) o->progress(o->user, c->done_bytes, c->total_bytes);
    return !(o->cancel && *o->cancel) ||
           dk_fail(c->err, DK_ERROR_CANCELLED, "%s: stopped as asked", c->out);
}

static size_t bytes_of(enum dtype dtype, size_t values)
{
    return values / (size_t)weights_dtype_block(dtype) * (size_t)weights_dtype_bytes(dtype);
}

/* The same type: the bytes as they are, which is what keeps every bit. */
static bool copy_tensor(struct conversion *c, struct create *file, const struct weight *w,
                        size_t size_bytes)
{
    const unsigned char *data = w->data;
    for (size_t at = 0, n; at < size_bytes; at += n) {
        n = size_bytes - at < PIECE_VALUES ? size_bytes - at : PIECE_VALUES;
        if (!create_write(file, data + at, n, c->err) || !report(c, n)) return false;
    }
    return true;
}

/* piece [PIECE_VALUES] and packed [4 * PIECE_VALUES bytes] are scratch. Blocks never span rows, so
 * rows do not matter. */
static bool pack_tensor(struct conversion *c, struct create *file, const struct weight *w,
                        enum dtype dtype, float *piece, unsigned char *packed)
{
    const unsigned char *data = w->data;
    size_t values = weights_value_count(w);
    for (size_t at = 0, n; at < values; at += n) {
        n = values - at < PIECE_VALUES ? values - at : PIECE_VALUES;
        c->kernels.unpack(w->dtype, piece, data + bytes_of(w->dtype, at), n);
        if (w->scale > 0) c->kernels.scale(piece, piece, w->scale, n);
        if (!pack_row(dtype, packed, piece, n))
            return dk_fail(c->err, DK_ERROR_NUMERIC,
                           "%s: tensor %s has values too large for %s; convert to bf16 or f32",
                           c->in, w->name, weights_dtype_name(dtype));
        size_t size_bytes = bytes_of(dtype, n);
        if (!create_write(file, packed, size_bytes, c->err) || !report(c, size_bytes)) return false;
    }
    return true;
}

static bool write_tensors(struct conversion *c, struct create *file, size_t alignment)
{
    static const unsigned char zeros[64];
    float *piece = malloc(PIECE_VALUES * sizeof *piece);
    unsigned char *packed = malloc(PIECE_VALUES * sizeof *piece);
    bool ok = (piece && packed) || no_memory(c);
    for (size_t i = 0; ok && i < c->n_tensors; i++) {
        const struct header_tensor *t = &c->tensors[i];
        ok = t->dtype == c->from[i]->dtype && !(c->from[i]->scale > 0)
                 ? copy_tensor(c, file, c->from[i], t->size_bytes)
                 : pack_tensor(c, file, c->from[i], t->dtype, piece, packed);
        ok = ok &&
             create_write(file, zeros, (alignment - t->size_bytes % alignment) % alignment, c->err);
    }
    free(piece);
    free(packed);
    return ok;
}

static bool write_file(struct conversion *c)
{
    struct header header = {0};
    struct create file;
    bool ok = c->to_gguf ? header_gguf(&header, c->tensors, c->n_tensors, c->metadata.items,
                                       c->metadata.n_items, c->err)
                         : header_safetensors(&header, c->tensors, c->n_tensors, c->metadata.items,
                                              c->metadata.n_items, c->err);
    ok = ok && create_open(&file, c->out, c->options->overwrite, c->err);
    if (ok) {
        ok = create_write(&file, header.bytes, header.n_bytes, c->err) &&
             write_tensors(c, &file, header.alignment);
        if (ok)
            ok = create_commit(&file, c->err);
        else
            create_abort(&file);
    }
    free(header.bytes);
    return ok;
}

bool dk_convert(const char *in, const char *out, const struct dk_convert_options *options,
                struct dk_error *err)
{
    static const struct dk_convert_options defaults = {0};
    struct dk_error own = {0};
    struct conversion c = {
        .in = in, .out = out, .options = options ? options : &defaults, .err = &own};
    kernels_init(&c.kernels, 0);
    bool ok = read_options(&c) && open_sources(&c) && collect_metadata(&c) && collect_tensors(&c) &&
              write_file(&c);
    for (size_t i = 0; c.tensors && i < c.n_tensors; i++) {
        union {
            const char *in;
            char *out;
        } name = {.in = c.tensors[i].name}; /* made by add_tensor */
        free(name.out);
    }
    free(c.tensors);
    free(c.from);
    dk_texts_free(&c.metadata);
    for (size_t i = 0; i < c.n_sources; i++) weights_close(c.sources[i]);
    return ok || dk_fail(err, own.code, "%s", own.message);
}
