/* checkfiles.c - model files and pictures: what is read, what is refused, and with which words. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "files/create.h"
#include "files/image.h"
#include "files/weights.h"
#include "scratch.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *path, const void *data, size_t size_bytes)
{
    unlink(path); /* ext4 flushes a file that is cut to nothing and written again, which takes
                     milliseconds */
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size_bytes, f) != size_bytes || fclose(f) != 0) {
        printf("cannot write %s\n", path);
        exit(1);
    }
}

static unsigned char *get(const char *path, size_t *size_bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    unsigned char *data = NULL;
    size_t n = 0;
    for (size_t room = 1 << 16;; room *= 2) {
        data = realloc(data, room);
        n += fread(data + n, 1, room - n, f);
        if (n < room) break;
    }
    fclose(f);
    *size_bytes = n;
    return data;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

/* Three tensors, the last one a scalar, and 24 + 7 + 8 bytes of data. */
static const char header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"first\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"second\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[24,31]},"
    "\"third\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[31,39]}}";
#define DATA_BYTES 39u

static void put_safetensors(const char *path, uint64_t header_bytes, const char *text,
                            size_t text_bytes, size_t data_bytes)
{
    unsigned char file[4096] = {0};
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)(header_bytes >> 8 * i);
    memcpy(file + 8, text, text_bytes);
    for (size_t i = 0; i < data_bytes; i++) file[8 + text_bytes + i] = (unsigned char)i;
    put(path, file, 8 + text_bytes + data_bytes);
}

/* Reads every byte of every tensor, for the sanitizers to watch. */
static unsigned touch(const struct weights *w)
{
    unsigned sum = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weight *t = weights_at(w, i);
        for (size_t k = 0; k < weights_byte_count(t); k++)
            sum += ((const unsigned char *)t->data)[k];
    }
    return sum;
}

/* Opens and expects a refusal that names the file and says what is in words (may be NULL). */
static void refused(const char *path, enum dk_code code, const char *words, const char *what)
{
    struct dk_error err = {0};
    struct weights *w = weights_open(path, &err);
    CHECK(!w, "%s was accepted", what);
    CHECK(w || err.code == code, "%s: code %d: %s", what, (int)err.code, err.message);
    CHECK(w || strstr(err.message, path), "%s: the file is not named: %s", what, err.message);
    CHECK(w || !words || strstr(err.message, words), "%s: \"%s\" is not in: %s", what, words,
          err.message);
    weights_close(w);
}

static void check_plain(void)
{
    struct path path = in("plain.safetensors");
    put_safetensors(path.s, strlen(header), header, strlen(header), DATA_BYTES);
    struct dk_error err = {0};
    struct weights *w = weights_open(path.s, &err);
    CHECK(w, "%s", err.message);
    if (!w) return;
    CHECK(weights_count(w) == 3, "%zu tensors", weights_count(w));
    const struct weight *first = weights_find(w, "first"), *third = weights_find(w, "third");
    CHECK(first && first->rank == 2 && first->dim[0] == 2 && first->dim[1] == 3 &&
              first->dtype == DTYPE_F32,
          "first");
    CHECK(third && third->rank == 0 && third->dtype == DTYPE_I64 && weights_byte_count(third) == 8,
          "a scalar");
    CHECK(third && ((const unsigned char *)third->data)[0] == 31, "the scalar's first byte");
    CHECK(!weights_find(w, "fourth"), "found what is not there");
    const char *format = weights_metadata(w, "format");
    CHECK(format && strcmp(format, "pt") == 0, "metadata");
    CHECK(touch(w) == 38 * 39 / 2, "sum of the bytes");
    weights_close(w);
}

/* Changes every number of shapes and offsets to every number of a list. */
static void check_numbers(void)
{
    static const char *const numbers[] = {"-1",
                                          "0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "6",
                                          "7",
                                          "8",
                                          "23",
                                          "24",
                                          "25",
                                          "30",
                                          "31",
                                          "32",
                                          "38",
                                          "39",
                                          "40",
                                          "65536",
                                          "4294967295",
                                          "4294967296",
                                          "2305843009213693952",
                                          "4611686018427387905",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "1e3",
                                          "1.5",
                                          "null",
                                          "\"1\"",
                                          "[1]",
                                          "{}",
                                          "true"};
    struct path path = in("numbers.safetensors");
    for (const char *s = strchr(header, '['); *s; s++) {
        if (*s < '0' || *s > '9' || (s[-1] != '[' && s[-1] != ',')) continue;
        int digits = (int)strspn(s, "0123456789");
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            if ((size_t)digits == strlen(numbers[i]) && strncmp(s, numbers[i], (size_t)digits) == 0)
                continue;
            char text[1024];
            int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(s - header), header, numbers[i],
                             s + digits);
            put_safetensors(path.s, (uint64_t)n, text, (size_t)n, DATA_BYTES);
            char what[64];
            snprintf(what, sizeof what, "%s at byte %d of the header", numbers[i],
                     (int)(s - header));
            refused(path.s, DK_ERROR_FORMAT, NULL, what);
        }
    }
}

static void check_forged(void)
{
    static const struct {
        const char *from, *to, *words;
        enum dk_code code;
    } forged[] = {
        {"F32", "F16", "tensor first occupies 24 bytes", DK_ERROR_FORMAT},
        {"F32", "F64", "tensor first occupies 24 bytes", DK_ERROR_FORMAT},
        {"\"U8\"", "\"I32\"", "tensor second", DK_ERROR_FORMAT},
        {"I64", "F8_E4M3", "tensor third", DK_ERROR_FORMAT},
        {"F32", "Q4_0", "dtype Q4_0", DK_ERROR_UNSUPPORTED},
        {"F32", "", "dtype", DK_ERROR_UNSUPPORTED},
        {"\"F32\"", "32", "no dtype", DK_ERROR_FORMAT},
        {"[2,3]", "[2,3,1,1,1]", "5 dimensions", DK_ERROR_UNSUPPORTED},
        {"[2,3]", "[0,3]", "dimension of size 0", DK_ERROR_FORMAT},
        {"[2,3]", "[4294967296,4294967296]", "overflows", DK_ERROR_FORMAT},
        {"[2,3]", "[2305843009213693952,3]", "overflows", DK_ERROR_FORMAT},
        {"[2,3]", "{}", "no list as its shape", DK_ERROR_FORMAT},
        {"[0,24]", "[0,24,24]", "two whole numbers", DK_ERROR_FORMAT},
        {"[0,24]", "[24,0]", "forward range", DK_ERROR_FORMAT},
        {"[24,31]", "[20,27]", "inside its neighbour", DK_ERROR_FORMAT},
        {"[24,31]", "[0,7]", "inside its neighbour", DK_ERROR_FORMAT},
        {"[24,31]", "[32,39]", "hole", DK_ERROR_FORMAT},
        {"second", "first", "duplicate", DK_ERROR_FORMAT},
        {"\"second\"", "\"\"", "name has 0 bytes", DK_ERROR_FORMAT},
        {"second", "se\\u001b[2Jcond", "control characters", DK_ERROR_FORMAT},
        {"second", "se\\u0000cond", "JSON", DK_ERROR_FORMAT},
        {"\"pt\"", "1", "__metadata__", DK_ERROR_FORMAT},
        {"{\"format\":\"pt\"}", "[]", "__metadata__", DK_ERROR_FORMAT},
        {"\"shape\":[2,3],", "", "no list as its shape", DK_ERROR_FORMAT},
        {"\"dtype\":\"F32\",", "", "no dtype", DK_ERROR_FORMAT},
        {"\"pt\"", "[[[[[[[[1]]]]]]]]", "levels deep", DK_ERROR_FORMAT},
        {"[2,3]", "[2,3]],", "JSON is damaged", DK_ERROR_FORMAT},
    };
    struct path path = in("forged.safetensors");
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        const char *at = strstr(header, forged[i].from);
        if (!at) continue;
        char text[1024];
        int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - header), header, forged[i].to,
                         at + strlen(forged[i].from));
        put_safetensors(path.s, (uint64_t)n, text, (size_t)n, DATA_BYTES);
        refused(path.s, forged[i].code, forged[i].words, forged[i].to);
    }
    put_safetensors(path.s, strlen(header), header, strlen(header), DATA_BYTES + 1);
    refused(path.s, DK_ERROR_FORMAT, "tensors end at byte 39", "a byte too many");
    char deep[3000];
    memset(deep, '[', sizeof deep);
    put_safetensors(path.s, sizeof deep, deep, sizeof deep, 0);
    refused(path.s, DK_ERROR_FORMAT, "levels deep", "3000 brackets");
    put_safetensors(path.s, 2, "{}", 2, 0);
    refused(path.s, DK_ERROR_FORMAT, "no tensors", "an empty header");
}

static void check_lengths(void)
{
    static const uint64_t lengths[] = {
        0,          1,         7,          1u << 20,       100u << 20, (100u << 20) + 1,
        UINT32_MAX, INT64_MAX, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};
    struct path path = in("lengths.safetensors");
    size_t n = strlen(header);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        put_safetensors(path.s, lengths[i], header, n, DATA_BYTES);
        refused(path.s, DK_ERROR_FORMAT, NULL, "a wrong header length");
    }
    for (uint64_t wrong = n - 3; wrong <= n + DATA_BYTES + 1; wrong++) {
        if (wrong == n) continue;
        put_safetensors(path.s, wrong, header, n, DATA_BYTES);
        refused(path.s, DK_ERROR_FORMAT, NULL, "a header length that is a little wrong");
    }
}

static void check_truncated(void)
{
    struct path whole = in("plain.safetensors"), path = in("cut.safetensors");
    size_t n;
    unsigned char *file = get(whole.s, &n);
    for (size_t cut = 0; cut < n; cut++) {
        put(path.s, file, cut);
        refused(path.s, DK_ERROR_FORMAT, cut == 0 ? "empty" : "download it again", "a cut file");
    }
    free(file);
    file = get("tests/golden/models/tiny-sd2.ldm.safetensors", &n);
    CHECK(file, "no tests/golden/models/tiny-sd2.ldm.safetensors");
    if (!file) return;
    for (size_t eighth = 1; eighth < 8; eighth++) {
        put(path.s, file, n * eighth / 8);
        refused(path.s, DK_ERROR_FORMAT, "download it again", "a cut checkpoint");
    }
    put(path.s, file, n - 1);
    refused(path.s, DK_ERROR_FORMAT, "download it again", "a checkpoint without its last byte");
    free(file);
}

/* Any byte of the header may become any of a few; whatever is still accepted can be read without
 * fault. */
static void check_bytes(void)
{
    static const char bytes[] = "\x00\x01 \"{}[],:09-e\\\x7f\x80\xff";
    struct path path = in("bytes.safetensors");
    size_t n = strlen(header);
    int accepted = 0, rejected = 0;
    for (size_t at = 0; at < n; at++) {
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            char text[sizeof header];
            memcpy(text, header, sizeof header);
            text[at] = bytes[b];
            put_safetensors(path.s, n, text, n, DATA_BYTES);
            struct dk_error err = {0};
            struct weights *w = weights_open(path.s, &err);
            if (w) touch(w);
            if (!w && !strstr(err.message, path.s)) CHECK(false, "no file in: %s", err.message);
            accepted += w != NULL;
            rejected += w == NULL;
            weights_close(w);
        }
    }
    CHECK(rejected > 8 * accepted, "%d of %d damaged headers accepted", accepted,
          accepted + rejected);
}

/* ---- folders --------------------------------------------------------------------------------- */

/* A file of one u8 tensor [1] with the value given. */
static void put_one(const char *path, const char *name, unsigned char value)
{
    unsigned char file[256] = {0};
    int n = snprintf((char *)file + 8, sizeof file - 8,
                     "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    file[0] = (unsigned char)n;
    file[8 + n] = value;
    put(path, file, (size_t)n + 9);
}

static int value_of(const struct weights *w, const char *name)
{
    const struct weight *t = w ? weights_find(w, name) : NULL;
    return t ? *(const unsigned char *)t->data : -1;
}

static void check_folders(void)
{
    struct path dir = in("folder");
    mkdir(dir.s, 0777);
    refused(dir.s, DK_ERROR_MODEL, "no weights in this folder", "an empty folder");
    static const struct {
        const char *file;
        int value;
    } better[] = {
        {"any.safetensors", 1},
        {"model.fp16.safetensors", 2},
        {"model.safetensors", 3},
        {"diffusion_pytorch_model.safetensors", 4}}; /* each is preferred to those before */
    for (size_t i = 0; i < sizeof better / sizeof *better; i++) {
        char name[64];
        snprintf(name, sizeof name, "folder/%s", better[i].file);
        put_one(in(name).s, "a", (unsigned char)better[i].value);
        struct dk_error err = {0};
        struct weights *w = weights_open(dir.s, &err);
        CHECK(value_of(w, "a") == better[i].value, "%s: %s", better[i].file, err.message);
        weights_close(w);
    }
    unlink(in("folder/model.safetensors").s);
    unlink(in("folder/model.fp16.safetensors").s);
    unlink(in("folder/diffusion_pytorch_model.safetensors").s);
    put_one(in("folder/other.safetensors").s, "a", 9);
    refused(dir.s, DK_ERROR_MODEL, "several .safetensors files", "two files of no known name");
}

static void check_shards(void)
{
    struct path dir = in("shards");
    mkdir(dir.s, 0777);
    put_one(in("shards/1.safetensors").s, "a", 1);
    put_one(in("shards/2.safetensors").s, "b", 2);
    static const struct {
        const char *map, *words;
    } wrong[] = {
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"../shards/2.safetensors\"}}",
         "a file beside it"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"/dev/zero\"}}", "a file beside it"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"..\"}}", "a file beside it"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":7}}", "a file beside it"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}",
         "tensor c is in none"},
        {"{\"weight_map\":{}}", "no weight_map"},
        {"{\"weight_map\":[]}", "no weight_map"},
        {"[]", "not an object"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}", "damaged"},
    };
    const char *index = "shards/model.safetensors.index.json";
    struct path path = in(index);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put(path.s, wrong[i].map, strlen(wrong[i].map));
        refused(dir.s, DK_ERROR_FORMAT, wrong[i].words, wrong[i].map);
    }
    const char *lost = "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}}";
    put(path.s, lost, strlen(lost));
    refused(dir.s, DK_ERROR_FILE, "3.safetensors: cannot open", "a missing shard");
    const char *good = "{\"metadata\":{\"total_size\":2},\"weight_map\":{\"a\":\"1.safetensors\","
                       "\"b\":\"2.safetensors\"}}";
    put(path.s, good, strlen(good));
    struct dk_error err = {0};
    struct weights *w = weights_open(dir.s, &err);
    CHECK(value_of(w, "a") == 1 && value_of(w, "b") == 2, "shards: %s", err.message);
    weights_close(w);
    put_one(in("shards/2.safetensors").s,
            "a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},\"b", 2);
    put(path.s, good, strlen(good));
    FILE *second = fopen(in("shards/2.safetensors").s, "ab");
    if (!second || fputc(3, second) == EOF || fclose(second) != 0) exit(1);
    refused(dir.s, DK_ERROR_FORMAT, "2.safetensors: tensor a is there twice",
            "a tensor in two shards");
}

static void check_odd_paths(void)
{
    refused("/nonexistent/model.safetensors", DK_ERROR_FILE, "cannot open", "a missing file");
    refused("/dev/null", DK_ERROR_FILE, "regular file", "a device");
    struct path pipe = in("pipe");
    unlink(pipe.s);
    if (mkfifo(pipe.s, 0600) == 0) refused(pipe.s, DK_ERROR_FILE, "regular file", "a pipe");
    put(in("text.safetensors").s, "this is no model at all, just a line of text\n", 45);
    refused(in("text.safetensors").s, DK_ERROR_FORMAT, "not a safetensors file", "a text file");
}

/* ---- reading by name ------------------------------------------------------------------------- */

static void count_name(void *user, const char *name)
{
    (void)name;
    ++*(int *)user;
}

static void check_reader(void)
{
    struct path path = in("plain.safetensors");
    struct dk_error err = {0};
    struct weights *w = weights_open(path.s, &err);
    if (!w) return;
    struct weights_reader r = {.weights = w, .prefix = "fi", .err = &err};
    struct weight first = weights_need(&r, (int64_t[4]){2, -1}, "r%s", "st");
    CHECK(weight_exists(&first) && first.dim[1] == 3, "%s", err.message);
    struct weight padded = weights_need(&r, (int64_t[4]){2, 3, 1, 1}, "rst");
    CHECK(weight_exists(&padded) && padded.rank == 4 && padded.dim[3] == 1,
          "a linear layer as a 1x1 convolution");
    CHECK(weights_has(&r, "rst") && !weights_has(&r, "rsx"), "weights_has");
    struct weight absent = weights_want(&r, (int64_t[4]){2, 3}, "nowhere");
    CHECK(!weight_exists(&absent) && err.code == DK_OK, "an absent tensor that is only wanted");
    int unused = 0;
    CHECK(weights_unused(w, count_name, &unused) == 2 && unused == 2, "%d unused", unused);
    struct weight wrong = weights_need(&r, (int64_t[4]){3, 2}, "rst");
    CHECK(!weight_exists(&wrong) && err.code == DK_ERROR_MODEL, "a wrong shape");
    CHECK(strstr(err.message, "tensor first has shape [2, 3], expected [3, 2]"), "%s", err.message);
    first = weights_need(&r, (int64_t[4]){2, 3}, "rst");
    CHECK(!weight_exists(&first), "reading goes on after an error");
    err = (struct dk_error){0};
    weights_need(&r, (int64_t[4]){4, -1, 3, 3}, "ve.%d.weight", 7);
    CHECK(strstr(err.message, "tensor five.7.weight") || strstr(err.message, "tensor five.7"), "%s",
          err.message);
    CHECK(strstr(err.message, "[4, any, 3, 3] is missing"), "%s", err.message);
    weights_close(w);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Every tensor of a folder is in the part of the single file, bit for bit, and nothing else is
 * there. */
static void compare_part(struct weights *all, const char *model, const char *part)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/models/%s/%s", model, part);
    struct stat st;
    struct weights *view = weights_part(all, part);
    if (stat(path, &st) != 0) {
        CHECK(!view, "%s: a %s out of nowhere", model, part);
        return;
    }
    struct dk_error err = {0};
    struct weights *own = weights_open(path, &err);
    CHECK(own && view, "%s: %s: %s", model, part, err.message);
    for (size_t i = 0; own && view && i < weights_count(own); i++) {
        const struct weight *a = weights_at(own, i), *b = weights_find(view, a->name);
        CHECK(b, "%s: %s.%s is missing", model, part, a->name);
        if (!b) continue;
        bool shape =
            a->rank == b->rank && memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank) == 0;
        CHECK(shape, "%s: %s.%s: shape", model, part, a->name);
        /* tiny-sd2's text encoder is f32 in the folder and f16 in the file: the f32 values end in
         * 13 zero bits. */
        bool same = a->dtype != b->dtype || memcmp(a->data, b->data, weights_byte_count(a)) == 0;
        CHECK(same, "%s: %s.%s: bytes", model, part, a->name);
    }
    if (own && view)
        CHECK(weights_count(own) == weights_count(view), "%s: %s: tensors too many", model, part);
    if (own) CHECK(weights_part(own, part) == own, "%s: %s alone is not recognised", model, part);
    weights_close(own);
}

static void check_checkpoints(void)
{
    static const char *const models[] = {"tiny-sd1", "tiny-sd2", "tiny-sdxl"};
    static const char *const parts[] = {"unet", "vae", "text_encoder", "text_encoder_2"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char path[128];
        snprintf(path, sizeof path, "tests/golden/models/%s.ldm.safetensors", models[m]);
        struct dk_error err = {0};
        struct weights *all = weights_open(path, &err);
        CHECK(all && weights_kind(all) == WEIGHTS_CHECKPOINT, "%s: %s", path, err.message);
        if (!all) continue;
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            compare_part(all, models[m], parts[p]);
        CHECK(weights_ignored(all, NULL, NULL) >= 5, "%s: %zu tensors ignored", path,
              weights_ignored(all, NULL, NULL));
        CHECK(!weights_part(all, "safety_checker"), "%s: a part nobody has", path);
        weights_close(all);
    }
}

static void check_kinds(void)
{
    static const struct {
        const char *tensor;
        enum weights_kind kind;
    } kinds[] = {
        {"lora_unet_down_blocks_0_attentions_0_proj_in.lora_down.weight", WEIGHTS_LORA},
        {"unet.down_blocks.0.attentions.0.proj_in.lora_A.weight", WEIGHTS_LORA},
        {"time_embedding.linear_1.weight", WEIGHTS_UNET},
        {"input_blocks.0.0.weight", WEIGHTS_UNET},
        {"decoder.mid.block_1.norm1.weight", WEIGHTS_VAE},
        {"text_model.embeddings.token_embedding.weight", WEIGHTS_TEXT_ENCODER},
        {"control_model.input_hint_block.0.weight", WEIGHTS_CONTROLNET},
        {"emb_params", WEIGHTS_EMBEDDING},
        {"model.diffusion_model.time_embed.0.weight", WEIGHTS_CHECKPOINT},
        {"anything", WEIGHTS_UNKNOWN},
    };
    struct path path = in("kind.safetensors");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        put_one(path.s, kinds[i].tensor, 1);
        struct dk_error err = {0};
        struct weights *w = weights_open(path.s, &err);
        CHECK(w && weights_kind(w) == kinds[i].kind, "%s: %s", kinds[i].tensor,
              w ? weights_kind_name(weights_kind(w)) : err.message);
        weights_close(w);
    }
    static const char *const foreign[][2] = {
        {"model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight", "Stable Diffusion 3"},
        {"double_blocks.0.img_attn.qkv.weight", "FLUX"},
        {"transformer_blocks.0.attn.add_q_proj.weight", "Stable Diffusion 3"},
        {"model.diffusion_model.input_blocks.1.0.time_stack.emb_layers.1.bias",
         "Stable Video Diffusion"},
    };
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        put_one(path.s, foreign[i][0], 1);
        refused(path.s, DK_ERROR_UNSUPPORTED, foreign[i][1], foreign[i][0]);
    }
}

/* ---- GGUF and pickles ------------------------------------------------------------------------ */

#define CORPUS "tests/fuzz/corpus/"

static float float_at(const struct weight *w, size_t index)
{
    float x = NAN;
    if (w) memcpy(&x, (const unsigned char *)w->data + index * sizeof x, sizeof x);
    return x;
}

static bool is_shape(const struct weight *w, enum dtype dtype, int rank, int64_t a, int64_t b)
{
    return w && w->dtype == dtype && w->rank == rank && (rank < 1 || w->dim[0] == a) &&
           (rank < 2 || w->dim[1] == b);
}

/* A key is told as a key; one of 600 bytes is none. */
static void check_long_key(void)
{
    unsigned char file[24 + 8 + 600 + 8] = "GGUF\3\0\0\0";
    file[8] = file[16] = 1; /* one tensor, one key */
    file[24] = 600 & 0xff;
    file[25] = 600 >> 8;
    memset(file + 32, 'k', 600);
    struct path path = in("key.gguf");
    put(path.s, file, sizeof file);
    refused(path.s, DK_ERROR_FORMAT, "a key of the header has 600 bytes", "a long key");
}

static void check_gguf(void)
{
    struct dk_error err = {0};
    struct weights *w = weights_open(CORPUS "gguf/keys", &err);
    CHECK(w, "%s", err.message);
    CHECK(w && is_shape(weights_find(w, "a"), DTYPE_F32, 2, 3, 2), "dimensions are to be reversed");
    static const char *const texts[][2] = {
        {"u8", "1"},    {"i8", "-1"},     {"i16", "-1"},   {"i32", "-1"},
        {"f32", "1.5"}, {"bool", "true"}, {"f64", "-2.5"}, {"general.name", "small"},
        {"i64", "-1"}};
    for (size_t i = 0; w && i < sizeof texts / sizeof *texts; i++) {
        const char *text = weights_metadata(w, texts[i][0]);
        CHECK(text && strcmp(text, texts[i][1]) == 0, "%s: %s", texts[i][0], text ? text : "none");
    }
    weights_close(w);
    w = weights_open(CORPUS "gguf/types", &err);
    CHECK(w && weights_count(w) == 14, "%s", err.message);
    CHECK(w && is_shape(weights_find(w, "q4_k"), DTYPE_Q4_K, 1, 256, 0), "q4_k");
    CHECK(w && is_shape(weights_find(w, "q6_k"), DTYPE_Q6_K, 4, 1, 1), "q6_k");
    CHECK(w && is_shape(weights_find(w, "q8_0"), DTYPE_Q8_0, 2, 2, 32), "q8_0");
    weights_close(w);
    w = weights_open(CORPUS "gguf/k_types", &err);
    CHECK(w && is_shape(weights_find(w, "q2_k"), DTYPE_Q2_K, 1, 256, 0), "q2_k: %s", err.message);
    CHECK(w && is_shape(weights_find(w, "q3_k"), DTYPE_Q3_K, 1, 256, 0), "q3_k");
    CHECK(w && is_shape(weights_find(w, "q5_k"), DTYPE_Q5_K, 1, 256, 0), "q5_k");
    weights_close(w);
    /* stable-diffusion.cpp's own spelling: a stacked projection in blocks is split between rows. */
    w = weights_open(CORPUS "gguf/sdcpp", &err);
    CHECK(w, "%s", err.message);
    const char *v_proj = "text_encoder_2.text_model.encoder.layers.0.self_attn.v_proj.weight";
    const struct weight *v = w ? weights_find(w, v_proj) : NULL;
    CHECK(is_shape(v, DTYPE_Q8_0, 2, 1, 32), "a stacked projection");
    CHECK(v && *(const unsigned char *)v->data == (2 * 34 * 5 & 63), "its third row");
    CHECK(w && weights_find(w, "text_encoder.text_projection.weight"), "a projection");
    weights_close(w);
    /* [2, 32] in rows of a scale (0x0500, 0x2f2a) and 32 bytes (10, 15 ..., 52 ...), transposed. */
    w = weights_open(CORPUS "gguf/sdcpp_quantised", &err);
    const struct weight *p = w ? weights_find(w, "text_encoder_2.text_projection.weight") : NULL;
    CHECK(is_shape(p, DTYPE_F32, 2, 32, 2), "a quantised projection: %s", err.message);
    const float step = 1280 * 0x1p-24f;
    CHECK(float_at(p, 0) == 10 * step && float_at(p, 2) == 15 * step, "its first row: %g %g",
          (double)float_at(p, 0), (double)float_at(p, 2));
    CHECK(float_at(p, 1) == 52 * 0.1119384765625f, "its second row: %g", (double)float_at(p, 1));
    weights_close(w);
}

/* One number for all values of a tensor, in ComfyUI's older spelling and in its newer one. */
static void check_scaled(void)
{
    struct dk_error err = {0};
    struct weights *w = weights_open(CORPUS "safetensors/fp8_scaled", &err);
    CHECK(w, "%s", err.message);
    if (!w) return;
    const struct weight *a = weights_find(w, "unet.time_embedding.linear_1.weight");
    const struct weight *b = weights_find(w, "unet.time_embedding.linear_2.weight");
    const struct weight *bias = weights_find(w, "unet.time_embedding.linear_1.bias");
    CHECK(a && a->dtype == DTYPE_F8_E4M3 && a->scale == 0.25f, "scale_weight");
    CHECK(b && b->dtype == DTYPE_F8_E5M2 && b->scale == 3, "weight_scale");
    CHECK(bias && bias->scale == 0, "a bias");
    CHECK(weights_count(w) == 3 && weights_ignored(w, NULL, NULL) == 6, "%zu tensors, %zu ignored",
          weights_count(w), weights_ignored(w, NULL, NULL));
    weights_close(w);
    w = weights_open(CORPUS "safetensors/v_pred_value", &err);
    CHECK(w && weights_metadata(w, "v_pred") && weights_count(w) == 1, "a marker with a value: %s",
          err.message);
    weights_close(w);
}

static void check_pickle(void)
{
    static const char *const files[] = {CORPUS "pickle/plain", CORPUS "pickle/trainer"};
    for (int f = 0; f < 2; f++) {
        struct dk_error err = {0};
        struct weights *w = weights_open(files[f], &err);
        CHECK(w && weights_count(w) == 5, "%s: %s", files[f], err.message);
        if (!w) continue;
        const struct weight *a = weights_find(w, "a"), *t = weights_find(w, "transposed");
        const struct weight *tail = weights_find(w, "tail"),
                            *every = weights_find(w, "every_other");
        CHECK(is_shape(a, DTYPE_F32, 2, 2, 3) && float_at(a, 5) == 5, "a [2, 3]");
        CHECK(is_shape(t, DTYPE_F32, 2, 3, 2) && float_at(t, 1) == 3 && float_at(t, 2) == 1,
              "the columns of a: %g %g", (double)float_at(t, 1), (double)float_at(t, 2));
        CHECK(is_shape(tail, DTYPE_F32, 1, 2, 0) && float_at(tail, 0) == 4, "the end of a");
        CHECK(is_shape(every, DTYPE_F32, 1, 2, 0) && float_at(every, 1) == 3, "every second of a");
        CHECK(is_shape(weights_find(w, "n"), DTYPE_I64, 0, 0, 0), "a scalar");
        weights_close(w);
    }
    struct dk_error err = {0};
    struct weights *w = weights_open(CORPUS "pickle/nested", &err);
    CHECK(w && weights_find(w, "string_to_param.*"), "a dict in a dict: %s", err.message);
    weights_close(w);
    w = weights_open(CORPUS "pickle/zip64", &err);
    CHECK(w && float_at(weights_find(w, "x"), 3) == 3, "sizes of 64 bits: %s", err.message);
    weights_close(w);
}

static void check_hostile(void)
{
    static const struct {
        const char *file;
        enum dk_code code;
        const char *words;
    } hostile[] = {
        {"gguf/align_3", DK_ERROR_FORMAT, "general.alignment is 3"},
        {"gguf/dim_2_63", DK_ERROR_FORMAT, "tensor a has a dimension"},
        {"gguf/many_tensors", DK_ERROR_FORMAT, "4611686018427387904 tensors"},
        {"gguf/nested_list", DK_ERROR_FORMAT, "a list of values of type 9"},
        {"gguf/product", DK_ERROR_FORMAT, "tensor a: the product of its dimensions overflows"},
        {"gguf/rows_of_31", DK_ERROR_FORMAT, "rows of 31 values"},
        {"gguf/string_2_63", DK_ERROR_FORMAT, "download it again"},
        {"gguf/trailing", DK_ERROR_FORMAT, "the tensors end at byte 32"},
        {"gguf/twice", DK_ERROR_FORMAT, "tensor a is there twice"},
        {"gguf/type_iq2_xxs", DK_ERROR_UNSUPPORTED, "tensor a has ggml type 16"},
        {"gguf/version_1", DK_ERROR_UNSUPPORTED, "version 1"},
        {"gguf/zero_dim", DK_ERROR_FORMAT, "dimension of size 0"},
        {"pickle/absolute", DK_ERROR_FORMAT, "leads out of it"},
        {"pickle/big_endian", DK_ERROR_UNSUPPORTED, "big-endian"},
        {"pickle/compressed", DK_ERROR_UNSUPPORTED, "data.pkl is compressed"},
        {"pickle/cut", DK_ERROR_FORMAT, "no directory"},
        {"pickle/empty_stack", DK_ERROR_FORMAT, "data.pkl is damaged at byte 3"},
        {"pickle/endless_memo", DK_ERROR_FORMAT, "a memo out of order"},
        {"pickle/escape_in_name", DK_ERROR_UNSUPPORTED, "asks to run \"?[2J.x\""},
        {"pickle/holds_itself", DK_ERROR_FORMAT, "without end"},
        {"pickle/huge_shape", DK_ERROR_FORMAT, "tensor a has more values than its storage"},
        {"pickle/lost_storage", DK_ERROR_FORMAT, "data/7 is not in the archive"},
        {"pickle/negative", DK_ERROR_FORMAT, "tensor a has a dimension"},
        {"pickle/newobj", DK_ERROR_UNSUPPORTED, "opcode 0x81"},
        {"pickle/no_dict", DK_ERROR_FORMAT, "not a dict"},
        {"pickle/no_program", DK_ERROR_FORMAT, "without data.pkl"},
        {"pickle/no_stop", DK_ERROR_FORMAT, "without a stop"},
        {"pickle/old_format", DK_ERROR_UNSUPPORTED, "before 1.6"},
        {"pickle/outside", DK_ERROR_FORMAT, "tensor a leaves its storage"},
        {"pickle/overlapping", DK_ERROR_FORMAT,
         "data/0 and archive/data/9 of the zip archive overlap"},
        {"pickle/runs_eval", DK_ERROR_UNSUPPORTED, "asks to run \"builtins.eval\""},
        {"pickle/runs_inst", DK_ERROR_UNSUPPORTED, "opcode 0x53"},
        {"pickle/runs_system", DK_ERROR_UNSUPPORTED, "asks to run \"os.system\""},
        {"pickle/short_storage", DK_ERROR_FORMAT, "data/0 should hold 600 values"},
        {"pickle/stretched", DK_ERROR_FORMAT, "tensor a has more values than its storage"},
        {"pickle/stride_outside", DK_ERROR_FORMAT, "tensor a leaves its storage"},
        {"pickle/way_out", DK_ERROR_FORMAT, "leads out of it"},
        {"pickle/zero_dim", DK_ERROR_FORMAT, "tensor a has a dimension of size 0"},
        {"safetensors/edm", DK_ERROR_UNSUPPORTED, "a Playground v2.5 model"},
        {"safetensors/fp8_integer_scale", DK_ERROR_UNSUPPORTED, "scale_weight is of type i64"},
        {"safetensors/fp8_row_scales", DK_ERROR_UNSUPPORTED, "weight_scale has 2 values"},
        {"safetensors/fp8_two_scales", DK_ERROR_FORMAT, "time_embed.0.weight has two scales"},
        {"safetensors/fp8_zero_scale", DK_ERROR_FORMAT, "scale_weight is 0, expected"},
        {"safetensors/packed_note", DK_ERROR_UNSUPPORTED, "comfy_quant names a packing"},
        {"safetensors/packed_nvfp4", DK_ERROR_UNSUPPORTED, "weights in nvfp4"},
        {"safetensors/packed_u8", DK_ERROR_UNSUPPORTED, "time_embed.0.weight is of type u8"},
        {"safetensors/scaled_fp8", DK_ERROR_FORMAT, "a.weight, which is not there"},
        {"safetensors/split_not_by_three", DK_ERROR_FORMAT, "cannot be split"},
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        char path[128];
        snprintf(path, sizeof path, CORPUS "%s", hostile[i].file);
        refused(path, hostile[i].code, hostile[i].words, hostile[i].file);
    }
    /* Every cut of a file that is good as a whole. */
    static const char *const good[] = {CORPUS "gguf/types", CORPUS "pickle/plain"};
    struct path path = in("cut.other");
    for (int g = 0; g < 2; g++) {
        size_t n;
        unsigned char *file = get(good[g], &n);
        for (size_t cut = 1; file && cut < n; cut++) {
            /* Padding behind the last tensor may be missing. */
            if (g == 0 && n - cut < 32) break;
            put(path.s, file, cut);
            refused(path.s, DK_ERROR_FORMAT, NULL, good[g]);
        }
        free(file);
    }
}

/* ---- pictures -------------------------------------------------------------------------------- */

static struct dk_image sample_picture(int width_px, int height_px)
{
    struct dk_image image;
    if (!image_new(&image, width_px, height_px, NULL)) exit(1);
    uint32_t noise = 1; /* so that the file is about as large as the picture */
    for (int i = 0; i < width_px * height_px * 3; i++) {
        noise = noise * 1664525u + 1013904223u;
        image.rgb[i] = (uint8_t)(noise >> 24);
    }
    return image;
}

static bool same_picture(const struct dk_image *a, const struct dk_image *b)
{
    return a->width_px == b->width_px && a->height_px == b->height_px &&
           memcmp(a->rgb, b->rgb, (size_t)a->width_px * (size_t)a->height_px * 3) == 0;
}

static void check_round_trip(void)
{
    static char text[200001];
    for (size_t i = 0; i < sizeof text - 1; i++) text[i] = "long text "[i % 10];
    char names[6][12] = {"parameters", "darkroom", "e", "f", "g", "h"};
    char latin1[] = "caf\xc3\xa9, \xc3\xbc"
                    "ber\nSteps: 20",
         japanese[] = "{\"p\":\"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\"}";
    char emoji[] = "\xf0\x9f\x9a\x80 emoji \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80",
         empty[] = "", plain[] = "plain";
    char *texts[6] = {latin1, japanese, emoji, empty, text, plain};
    struct dk_text items[6];
    for (int i = 0; i < 6; i++) items[i] = (struct dk_text){.keyword = names[i], .text = texts[i]};
    struct path path = in("round.png"), again = in("again.png");
    struct dk_image image = sample_picture(37, 21), back = {0};
    struct dk_texts found = {0};
    struct dk_error err = {0};
    CHECK(dk_png_write(path.s, &image, items, 6, true, &err), "%s", err.message);
    CHECK(dk_png_read(path.s, &back, &found, &err), "%s", err.message);
    CHECK(back.rgb && same_picture(&image, &back), "the pixels differ");
    CHECK(found.n_items == 6, "%zu texts", found.n_items);
    for (size_t i = 0; i < found.n_items; i++) {
        CHECK(strcmp(found.items[i].keyword, items[i].keyword) == 0, "keyword %zu: %s", i,
              found.items[i].keyword);
        CHECK(strcmp(found.items[i].text, items[i].text) == 0, "text %zu: %.60s", i,
              found.items[i].text);
    }
    dk_image_free(&back);
    dk_texts_free(&found);
    CHECK(dk_png_write(again.s, &image, items, 6, true, &err), "%s", err.message);
    size_t n, m;
    unsigned char *first = get(path.s, &n), *second = get(again.s, &m);
    CHECK(n == m && memcmp(first, second, n) == 0, "the same picture gives other bytes");
    bool has_srgb = false, has_time = false, has_itxt = false, has_text = false;
    for (size_t i = 0; i + 4 < n; i++) {
        has_srgb |= memcmp(first + i, "sRGB", 4) == 0;
        has_time |= memcmp(first + i, "tIME", 4) == 0;
        has_itxt |= memcmp(first + i, "iTXtdarkroom", 12) == 0;
        has_text |= memcmp(first + i, "tEXtparameters\0caf\xe9", 18) == 0;
    }
    CHECK(has_srgb && !has_time, "sRGB %d, tIME %d", has_srgb, has_time);
    CHECK(has_itxt && has_text, "iTXt %d, tEXt %d", has_itxt, has_text);
    free(first);
    free(second);
    dk_image_free(&image);
}

static void check_texts_refused(void)
{
    struct path path = in("refused.png");
    struct dk_image image = sample_picture(4, 4);
    char bad[7][100] = {"", " a", "a ", "a  b", "\xe6\x97\xa5", "a\nb"};
    memset(bad[6], 'k', 80); /* one too many */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[] = "x";
        struct dk_error err = {0};
        bool ok = dk_png_write(path.s, &image, &(struct dk_text){bad[i], text}, 1, true, &err);
        CHECK(!ok && err.code == DK_ERROR_ARGUMENT, "keyword \"%s\": %s", bad[i], err.message);
    }
    char keyword[] = "k", text[] = "a \xff\xed\xa0\x80\xc0\x80 b";
    struct dk_error err = {0};
    struct dk_texts found = {0};
    CHECK(dk_png_write(path.s, &image, &(struct dk_text){keyword, text}, 1, true, &err), "%s",
          err.message);
    CHECK(dk_png_read(path.s, NULL, &found, &err) && found.n_items == 1, "%s", err.message);
    const char *want =
        "a \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd b";
    CHECK(found.n_items == 1 && strcmp(found.items[0].text, want) == 0, "ill-formed bytes");
    dk_texts_free(&found);
    dk_image_free(&image);
}

/* How many files of the scratch folder are left-over temporary ones. */
static int n_temporary(const char *path)
{
    char command[1200];
    snprintf(command, sizeof command, "ls -a '%s' | grep -c '^\\.darkroom-'", path);
    FILE *f = popen(command, "r");
    int n = -1;
    if (!f || fscanf(f, "%d", &n) != 1) n = -1;
    if (f) pclose(f);
    return n;
}

static void not_written(const char *path, bool overwrite, const char *words)
{
    struct dk_image image = sample_picture(64, 64);
    struct dk_error err = {0};
    CHECK(!dk_png_write(path, &image, NULL, 0, overwrite, &err), "%s was written", path);
    CHECK(err.code == DK_ERROR_FILE && strstr(err.message, words), "\"%s\" is not in: %s", words,
          err.message);
    CHECK(strncmp(err.message, path, strlen(path)) == 0, "%s", err.message);
    dk_image_free(&image);
}

static void check_refused_places(void)
{
    struct path path = in("kept.png");
    put(path.s, "mine", 4);
    not_written(path.s, false, "exists already");
    size_t n;
    unsigned char *kept = get(path.s, &n);
    CHECK(n == 4 && memcmp(kept, "mine", 4) == 0, "the file that was there has changed");
    free(kept);
    not_written(in("nowhere/a.png").s, false, "no such directory");
    not_written(in("kept.png/a.png").s, false, "is not a directory");
    not_written(in("folder").s, true, "is a directory");
    not_written("/dev/null", true, "device or pipe");
    CHECK(n_temporary(folder) == 0, "%d temporary files are left", n_temporary(folder));
    struct dk_image image = sample_picture(3, 3);
    CHECK(dk_png_write(path.s, &image, NULL, 0, true, NULL), "replacing when asked to");
    dk_image_free(&image);
}

/* The target appears between opening and committing: it must win. */
static void check_race(void)
{
    struct path path = in("race.png");
    struct create c;
    struct dk_error err = {0};
    unlink(path.s);
    CHECK(create_open(&c, path.s, false, &err) && create_write(&c, "new", 3, &err), "%s",
          err.message);
    put(path.s, "theirs", 6);
    CHECK(!create_commit(&c, &err) && strstr(err.message, "exists already"), "%s", err.message);
    size_t n;
    unsigned char *kept = get(path.s, &n);
    CHECK(n == 6 && memcmp(kept, "theirs", 6) == 0, "the other's file was replaced");
    free(kept);
    err = (struct dk_error){0};
    CHECK(create_open(&c, path.s, true, &err), "%s", err.message);
    create_abort(&c);
    CHECK(n_temporary(folder) == 0, "%d temporary files are left", n_temporary(folder));
}

/* A folder that goes away, one that is read-only, and a disk that is full. Root may write anywhere
 * and may mount. */
static void check_hard_places(void)
{
    struct path dir = in("vanishing"), file = in("vanishing/a.png");
    struct create c;
    struct dk_error err = {0};
    mkdir(dir.s, 0777);
    CHECK(create_open(&c, file.s, false, &err) && create_write(&c, "x", 1, &err), "%s",
          err.message);
    CHECK(unlink(c.temporary) == 0 && rmdir(dir.s) == 0, "the folder stays");
    CHECK(!create_commit(&c, &err) && strstr(err.message, "no such directory"), "%s", err.message);

    dir = in("read-only");
    file = in("read-only/a.png");
    mkdir(dir.s, 0777);
    chmod(dir.s, 0555);
    if (geteuid() != 0) not_written(file.s, false, "not writable");
    chmod(dir.s, 0777);

    dir = in("small");
    file = in("small/a.png");
    mkdir(dir.s, 0777);
    char command[1200];
    snprintf(command, sizeof command, "mount -t tmpfs -o size=8k tmpfs '%s' 2>/dev/null", dir.s);
    if (geteuid() != 0 || system(command) != 0) {
        printf("skipped: a full disk (needs root and mount)\n");
        return;
    }
    not_written(file.s, false, "no space left on the disk");
    CHECK(n_temporary(dir.s) == 0, "a temporary file is left on the full disk");
    snprintf(command, sizeof command, "mount -o remount,ro '%s' 2>/dev/null", dir.s);
    if (system(command) == 0) not_written(file.s, false, "read-only disk");
    snprintf(command, sizeof command, "umount '%s'", dir.s);
    CHECK(system(command) == 0, "umount");
}

static void check_damaged_png(void)
{
    struct path path = in("round.png"), cut = in("cut.png");
    size_t n;
    unsigned char *file = get(path.s, &n);
    int accepted = 0;
    for (size_t k = 0; k < n; k += k < 600 ? 1 : n / 97) {
        put(cut.s, file, k);
        struct dk_image image;
        struct dk_texts texts;
        struct dk_error err = {0};
        bool ok = dk_png_read(cut.s, &image, &texts, &err);
        accepted += ok;
        CHECK(ok || (!image.rgb && !texts.items && strstr(err.message, cut.s)), "cut at %zu: %s", k,
              err.message);
        dk_image_free(&image);
        dk_texts_free(&texts);
    }
    CHECK(accepted == 0, "%d cut pictures were accepted", accepted);
    size_t sum = n - 12 - 1; /* the last byte of IDAT's check sum; IEND follows */
    file[sum] ^= 1;
    put(cut.s, file, n);
    struct dk_error damaged = {0};
    CHECK(!dk_png_read(cut.s, NULL, NULL, &damaged) &&
              strstr(damaged.message, "CRC error; copy or download it again"),
          "%s", damaged.message);
    file[sum] ^= 1;
    /* IHDR says 2^31-1 square, then 32768 square (3 GB): refused before anything is allocated. */
    static const unsigned char sizes[2][8] = {{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff},
                                              {0, 0, 0x80, 0, 0, 0, 0x80, 0}};
    static const unsigned char sums[2][4] = {{0xda, 0x76, 0xbc, 0x9c}, {0xe4, 0xf4, 0x3d, 0x5d}};
    for (int i = 0; i < 2; i++) {
        memcpy(file + 16, sizes[i], 8);
        memcpy(file + 29, sums[i], 4);
        put(cut.s, file, n);
        struct dk_error err = {0};
        CHECK(!dk_png_read(cut.s, NULL, NULL, &err) && err.code == DK_ERROR_FORMAT,
              "a picture of enormous size: code %d", err.code);
        CHECK(strstr(err.message, cut.s), "%s", err.message);
    }
    free(file);
}

static void check_quantisation(void)
{
    const float in_values[12] = {
        -1, 1, 0, -2, 2, INFINITY, -INFINITY, -0.99607843f, 0.00392157f, -0.00392157f, 0.5f, 0.25f};
    /* 0 is 127.5, which goes to the even 128; 0.5 is 191.25; 0.25 is 159.375. */
    const uint8_t want[12] = {0, 255, 128, 0, 255, 255, 0, 0, 128, 127, 191, 159};
    struct dk_image image;
    struct dk_error err = {0};
    CHECK(image_from_f32(&image, in_values, 2, 2, &err), "%s", err.message);
    for (int i = 0; image.rgb && i < 12; i++)
        CHECK(image.rgb[i] == want[i], "value %d: %d", i, image.rgb[i]);
    dk_image_free(&image);
    float bad[6] = {0, 0, 0, 0, NAN, 0};
    CHECK(!image_from_f32(&image, bad, 2, 1, &err) && err.code == DK_ERROR_NUMERIC,
          "NaN became a colour");
    CHECK(strstr(err.message, "pixel 1,0"), "%s", err.message);
}

int main(void)
{
    if (!scratch_open("files")) return 1;
    check_plain();
    check_numbers();
    check_forged();
    check_lengths();
    check_truncated();
    check_bytes();
    check_folders();
    check_shards();
    check_odd_paths();
    check_reader();
    check_checkpoints();
    check_kinds();
    check_gguf();
    check_long_key();
    check_scaled();
    check_pickle();
    check_hostile();
    check_round_trip();
    check_texts_refused();
    check_refused_places();
    check_race();
    check_hard_places();
    check_damaged_png();
    check_quantisation();
    if (!scratch_close()) return 1;
    return check_end("files");
}
