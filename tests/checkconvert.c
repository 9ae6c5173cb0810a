/* checkconvert.c - models from one kind of file into another and back, and types of numbers. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "darkroom.h"
#include "files/header.h"
#include "files/pack.h"
#include "files/weights.h"
#include "kernels/dtype.h"
#include "picture.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool convert(const char *from, const char *to, const char *dtype)
{
    struct dk_convert_options options = {.dtype = dtype, .overwrite = true};
    struct dk_error err = {0};
    bool ok = dk_convert(from, to, &options, &err);
    CHECK(ok, "%s to %s as %s: %s", from, to, dtype ? dtype : "it is", err.message);
    return ok;
}

static struct weights *opened(const char *path)
{
    struct dk_error err = {0};
    struct weights *w = weights_open(path, &err);
    CHECK(w, "%s: %s", path, err.message);
    return w;
}

static float *values(const struct weight *w, size_t *n)
{
    *n = weights_value_count(w);
    float *x = malloc((*n + 1) * sizeof *x);
    if (!x) exit(1);
    dtype_unpack(w->dtype, x, w->data, *n);
    return x;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void check_f16(void)
{
    int wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        unsigned char bytes[2] = {(unsigned char)(h & 0xff), (unsigned char)(h >> 8)};
        float x;
        dtype_unpack(DTYPE_F16, &x, bytes, 1);
        uint16_t back = pack_f16(x);
        bool is_nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff);
        if (is_nan ? (back & 0x7c00) != 0x7c00 || !(back & 0x3ff) : back != h) wrong++;
    }
    CHECK(wrong == 0, "%d of 65536 halves do not survive", wrong);
    static const struct {
        float x;
        uint16_t h;
    } ties[] = {{2049, 0x6800},       {2051, 0x6802},
                {65504, 0x7bff},      {65519, 0x7bff},
                {65520, 0x7c00},      {0x1p-25f, 0x0000},
                {0x1.8p-24f, 0x0002}, {0x1.000002p-25f, 0x0001},
                {-0x1p-24f, 0x8001},  {0x1.ffcp-15f, 0x0400},
                {1e-20f, 0},          {INFINITY, 0x7c00},
                {-1e30f, 0xfc00}};
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++)
        CHECK(pack_f16(ties[i].x) == ties[i].h, "%a became %04x", (double)ties[i].x,
              pack_f16(ties[i].x));
    float big[32] = {70000};
    unsigned char out[128];
    CHECK(!pack_row(DTYPE_F16, out, big, 32) && pack_row(DTYPE_BF16, out, big, 32),
          "70000 fits only bf16");
    big[0] = INFINITY;
    CHECK(pack_row(DTYPE_F16, out, big, 32) && !pack_row(DTYPE_Q8_0, out, big, 32),
          "infinity fits plain types only");
    static const float halves[4] = {1.00390625f, 1.01171875f, -1.00390625f,
                                    3.0e38f}; /* ties go to even */
    static const unsigned char want[8] = {0x80, 0x3f, 0x82, 0x3f, 0x80, 0xbf, 0x62, 0x7f};
    CHECK(pack_row(DTYPE_BF16, out, halves, 4) && memcmp(out, want, 8) == 0, "bf16");
}

/* Normal deviates from sums of uniform ones: the same on every machine. */
static void fill_normal(float *x, size_t n)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 12; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) / 16777216.0f;
        }
        x[i] = (sum - 6) * 0.02f;
    }
}

static double relative_error(enum dtype dtype, const float *x, size_t n)
{
    unsigned char *packed = malloc(n * 4);
    float *y = malloc(n * sizeof *y);
    if (!packed || !y) exit(1);
    CHECK(pack_row(dtype, packed, x, n), "%s does not fit", weights_dtype_name(dtype));
    dtype_unpack(dtype, y, packed, n);
    double error = 0, total = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        total += (double)x[i] * (double)x[i];
    }
    free(packed);
    free(y);
    return sqrt(error / total);
}

/* What a uniform step would give over the range of 32 normal deviates (about -2 to 2 sigma): 1/220,
 * 1/15, 1/14. */
static void check_quantised(void)
{
    static float x[4096];
    fill_normal(x, 4096);
    static const struct {
        enum dtype dtype;
        double limit;
    } cases[] = {{DTYPE_Q8_0, 0.006}, {DTYPE_Q4_0, 0.090}, {DTYPE_Q4_K, 0.080}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double error = relative_error(cases[i].dtype, x, 4096);
        CHECK(error < cases[i].limit, "%s: relative error %.4f", weights_dtype_name(cases[i].dtype),
              error);
        CHECK(error > cases[i].limit / 4, "%s: relative error %.4f is too good",
              weights_dtype_name(cases[i].dtype), error);
    }
    /* Whole numbers that fit the steps exactly come back exactly. */
    for (int i = 0; i < 256; i++) x[i] = (float)(i % 16 == 0 ? -8 : i % 16 - 8);
    CHECK(relative_error(DTYPE_Q4_0, x, 256) == 0, "-8 to 7 in q4_0");
    CHECK(relative_error(DTYPE_Q4_K, x, 256) < 1e-3, "-8 to 7 in q4_k: %g",
          relative_error(DTYPE_Q4_K, x, 256));
    for (int i = 0; i < 256; i++) x[i] = (float)(i % 255 - 127);
    for (int i = 0; i < 8; i++) x[32 * i] = 127;
    CHECK(relative_error(DTYPE_Q8_0, x, 256) == 0, "-127 to 127 in q8_0");
    memset(x, 0, sizeof x);
    x[255] = 1e-9f; /* a scale below the smallest half */
    CHECK(relative_error(DTYPE_Q4_K, x, 256) <= 1 && relative_error(DTYPE_Q8_0, x, 256) <= 1,
          "almost zero");
}

/*
 * Blocks of bytes from a congruential generator with plain scales put in. The values and their sums
 * were computed by another program, which goes through a block in the order of ggml's own layout.
 */
static void check_k_types(void)
{
    static const struct {
        enum dtype dtype;
        size_t at[2]; /* the bytes of d and dmin */
        double sum, weighted;
        float values[8];
    } cases[] = {
        {DTYPE_Q2_K, {80, 82}, -81.75, 145.5, {1.25f, 2, -4, 7, -0.5f, 2.5f, 0, -2.25f}},
        {DTYPE_Q3_K, {108, 0}, -276.75, 7986, {3, 5.75f, -20.25f, 0, 7, 2.5f, 2, -6}},
        {DTYPE_Q5_K, {0, 2}, 28444, -47090.25, {198, 78, 10, 47, 224, -12.5f, 94.25f, 156.25f}}};
    static const int places[8] = {0, 17, 47, 100, 131, 170, 222, 255};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        unsigned char block[176];
        float out[256];
        const char *name = weights_dtype_name(cases[c].dtype);
        uint32_t state = 12345;
        for (size_t i = 0; i < sizeof block; i++) {
            state = state * 1664525u + 1013904223u;
            block[i] = (unsigned char)(state >> 24);
        }
        for (int i = 0; i < (cases[c].at[1] ? 2 : 1); i++) { /* 0.25 and 0.5 */
            block[cases[c].at[i]] = 0;
            block[cases[c].at[i] + 1] = i ? 0x38 : 0x34;
        }
        dtype_unpack(cases[c].dtype, out, block, 256);
        double sum = 0, weighted = 0;
        for (int i = 0; i < 256; i++) {
            sum += (double)out[i];
            weighted += (double)out[i] * (i * 37 % 101 - 50);
        }
        CHECK(sum == cases[c].sum && weighted == cases[c].weighted, "%s: %g and %g", name, sum,
              weighted);
        for (int i = 0; i < 8; i++)
            CHECK(out[places[i]] == cases[c].values[i], "%s: value %d is %g", name, places[i],
                  (double)out[places[i]]);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char *const parts[] = {"unet", "vae", "text_encoder", "text_encoder_2"};

/* Every tensor of a is in b with the same shape, and with the same bytes or, if bits is false,
 * values as near as that. */
static void compare(struct weights *a, struct weights *b, bool bits, double limit, const char *what)
{
    CHECK(weights_count(a) == weights_count(b), "%s: %zu and %zu tensors", what, weights_count(a),
          weights_count(b));
    for (size_t i = 0; i < weights_count(a); i++) {
        const struct weight *x = weights_at(a, i), *y = weights_find(b, x->name);
        CHECK(y && x->rank == y->rank &&
                  memcmp(x->dim, y->dim, sizeof *x->dim * (size_t)x->rank) == 0,
              "%s: %s is missing or of another shape", what, x->name);
        if (!y) continue;
        if (bits) {
            bool same =
                x->dtype == y->dtype && memcmp(x->data, y->data, weights_byte_count(x)) == 0;
            CHECK(same, "%s: %s differs", what, x->name);
            continue;
        }
        size_t n, m;
        float *u = values(x, &n), *v = values(y, &m);
        double sum = 0, total = 1e-30;
        for (size_t k = 0; k < n; k++) {
            sum += pow((double)u[k] - (double)v[k], 2);
            total += pow((double)u[k], 2);
        }
        CHECK(sqrt(sum / total) <= limit, "%s: %s: relative error %g", what, x->name,
              sqrt(sum / total));
        free(u);
        free(v);
    }
}

/* The parts of a checkpoint against the folders of the model it was made of. */
static void compare_parts(const char *path, const char *model, bool bits, double limit)
{
    struct weights *all = opened(path);
    for (size_t p = 0; all && p < sizeof parts / sizeof *parts; p++) {
        char part_path[1024];
        snprintf(part_path, sizeof part_path, "%s/%s", model, parts[p]);
        struct stat st;
        struct weights *view = weights_part(all, parts[p]);
        CHECK((stat(part_path, &st) == 0) == (view != NULL), "%s: %s", path, parts[p]);
        struct weights *own = view ? opened(part_path) : NULL;
        if (own && view) compare(weights_part(own, parts[p]), view, bits, limit, parts[p]);
        weights_close(own);
    }
    weights_close(all);
}

static void check_round_trips(void)
{
    static const char *const models[] = {"tiny-sd1", "tiny-sdxl"}; /* all f16 */
    struct path single = in("single.safetensors"), gguf = in("half.gguf"),
                back = in("back.safetensors"), wide = in("wide.safetensors");
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char model[128], ldm[128];
        snprintf(model, sizeof model, "tests/golden/models/%s", models[m]);
        snprintf(ldm, sizeof ldm, "tests/golden/models/%s.ldm.safetensors", models[m]);
        if (convert(model, single.s, NULL)) compare_parts(single.s, model, true, 0);
        if (convert(ldm, gguf.s, "f16")) compare_parts(gguf.s, model, true, 0);
        if (convert(gguf.s, back.s, NULL)) compare_parts(back.s, model, true, 0);
        if (convert(gguf.s, wide.s, "f32")) compare_parts(wide.s, model, false, 0);
        if (convert(wide.s, back.s, "f16")) compare_parts(back.s, model, true, 0);
        if (convert(wide.s, back.s, "bf16")) compare_parts(back.s, model, false, 0.004);
        if (convert(single.s, gguf.s, "q8_0")) compare_parts(gguf.s, model, false, 0.01);
        if (convert(gguf.s, back.s, NULL)) compare_parts(back.s, model, false, 0.01);
        if (convert(single.s, gguf.s, "q4_0")) compare_parts(gguf.s, model, false, 0.12);
        if (convert(single.s, gguf.s, "q4_k")) compare_parts(gguf.s, model, false, 0.12);
    }
}

static void check_metadata(void)
{
    struct path single = in("meta.safetensors"), gguf = in("meta.gguf");
    if (!convert("tests/golden/models/tiny-sd2", single.s, NULL) ||
        !convert(single.s, gguf.s, "q8_0"))
        return;
    const char *paths[] = {single.s, gguf.s};
    for (int i = 0; i < 2; i++) {
        struct weights *w = opened(paths[i]);
        if (!w) continue;
        const char *config = weights_metadata(w, "unet/config.json"),
                   *format = weights_metadata(w, "format");
        CHECK(config && strstr(config, "\"cross_attention_dim\":64"), "%s: unet/config.json: %s",
              paths[i], config ? config : "none");
        CHECK(weights_metadata(w, "scheduler/scheduler_config.json"), "%s: no scheduler config",
              paths[i]);
        CHECK(format && strcmp(format, "pt") == 0, "%s: format", paths[i]);
        weights_close(w);
    }
    struct weights *w = opened(gguf.s);
    const struct weight *matrix =
        w ? weights_find(w, "unet.mid_block.attentions.0.proj_in.weight") : NULL;
    const struct weight *conv = w ? weights_find(w, "unet.conv_in.weight") : NULL;
    const struct weight *norm = w ? weights_find(w, "unet.conv_norm_out.weight") : NULL;
    CHECK(matrix && matrix->dtype == DTYPE_Q8_0, "a matrix is not quantised");
    CHECK(conv && conv->dtype == DTYPE_F16 && norm && norm->dtype == DTYPE_F16,
          "what should stay f16 did not");
    weights_close(w);
}

/* One tensor "a" [2, 256] of values, one "n" of a 64-bit integer, as a file. */
static void put_file(const char *path, const float *x)
{
    static const char header[] =
        "{\"__metadata__\":{\"title\":\"caf\xc3\xa9\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,256],\"data_offsets\":[0,2048]},"
        "\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[2048,2056]}}";
    unsigned char start[8] = {sizeof header - 1};
    int64_t n = 0x0123456789abcdef;
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(start, 8, 1, f) != 1 || fwrite(header, sizeof header - 1, 1, f) != 1 ||
        fwrite(x, 2048, 1, f) != 1 || fwrite(&n, 8, 1, f) != 1 || fclose(f) != 0)
        exit(1);
}

static void count_calls(void *user, size_t done, size_t total)
{
    int *calls = user;
    ++*calls;
    CHECK(done <= total, "%zu of %zu", done, total);
}

static void not_converted(const char *from, const char *to, struct dk_convert_options options,
                          enum dk_code code, const char *words)
{
    struct dk_error err = {0};
    CHECK(!dk_convert(from, to, &options, &err), "%s to %s was converted", from, to);
    CHECK(err.code == code && strstr(err.message, words), "\"%s\" is not in: %d %s", words,
          (int)err.code, err.message);
}

static void check_small(void)
{
    static float x[512];
    fill_normal(x, 512);
    struct path file = in("small.safetensors"), gguf = in("small.gguf"),
                back = in("small.back.safetensors");
    put_file(file.s, x);
    if (convert(file.s, gguf.s, "q4_k") && convert(gguf.s, back.s, "f32")) {
        struct weights *w = opened(gguf.s), *v = opened(back.s);
        const struct weight *a = w ? weights_find(w, "a") : NULL,
                            *n = v ? weights_find(v, "n") : NULL;
        CHECK(a && a->dtype == DTYPE_Q4_K && a->rank == 2 && a->dim[0] == 2 && a->dim[1] == 256,
              "a [2, 256] as q4_k");
        CHECK(n && n->dtype == DTYPE_I64 && *(const unsigned char *)n->data == 0xef,
              "the integer has changed");
        const char *title = v ? weights_metadata(v, "title") : NULL;
        CHECK(title && strcmp(title, "caf\xc3\xa9") == 0, "title: %s", title ? title : "none");
        weights_close(w);
        weights_close(v);
    }
    int calls = 0;
    struct dk_convert_options counting = {
        .overwrite = true, .progress = count_calls, .user = &calls};
    CHECK(dk_convert(file.s, back.s, &counting, NULL) && calls == 2, "%d calls of progress", calls);

    const volatile int stop = 1;
    not_converted(file.s, in("none.safetensors").s, (struct dk_convert_options){.cancel = &stop},
                  DK_ERROR_CANCELLED, "stopped");
    CHECK(access(in("none.safetensors").s, F_OK) != 0, "a stopped conversion leaves a file");
    not_converted(file.s, back.s, (struct dk_convert_options){0}, DK_ERROR_FILE, "exists already");
    not_converted(file.s, in("a.ckpt").s, (struct dk_convert_options){0}, DK_ERROR_ARGUMENT,
                  "does not tell the format");
    not_converted(file.s, in("a").s, (struct dk_convert_options){.format = "zip"},
                  DK_ERROR_ARGUMENT, "no format");
    not_converted(file.s, in("a.gguf").s, (struct dk_convert_options){.dtype = "q6_k"},
                  DK_ERROR_ARGUMENT, "no type");
    not_converted(file.s, in("a.safetensors").s, (struct dk_convert_options){.dtype = "q8_0"},
                  DK_ERROR_ARGUMENT, "safetensors cannot hold q8_0");
    not_converted("/nonexistent", in("a.gguf").s, (struct dk_convert_options){0}, DK_ERROR_FILE,
                  "cannot open");
    x[300] = 1e6f;
    put_file(file.s, x);
    not_converted(file.s, in("a.gguf").s, (struct dk_convert_options){.dtype = "f16"},
                  DK_ERROR_NUMERIC, "tensor a has values too large for f16");
    CHECK(access(in("a.gguf").s, F_OK) != 0, "a failed conversion leaves a file");
}

/* ---- fp8 with scales ------------------------------------------------------------------------- */

/* The nearest e4m3 (4 exponent bits, bias 7, 3 of mantissa) of a value up to 448. */
static unsigned char e4m3(float x)
{
    int exponent;
    float magnitude = fabsf(x);
    if (magnitude < 0x1p-10f) return 0;
    frexpf(magnitude, &exponent);
    if (exponent < -5) exponent = -5; /* denormals: steps of 2^-9 */
    int steps = (int)rintf(ldexpf(magnitude, 4 - exponent));
    if (steps == 16) steps = 8, exponent++;
    int code = steps < 8 ? steps : (exponent + 6) << 3 | (steps & 7);
    return (unsigned char)(code | (x < 0 ? 0x80 : 0));
}

/* Every NAME.weight of a file as fp8 with a scale beside it: embeddings and norms too, which nobody
 * would do, so that every way a weight is read is gone. */
static bool put_scaled(const char *from, const char *to)
{
    struct weights *w = opened(from);
    size_t n = w ? weights_count(w) : 0, n_out = 0;
    struct header_tensor *tensors = calloc(2 * n + 1, sizeof *tensors);
    char(*names)[256] = calloc(n + 1, sizeof *names);
    float *scales = calloc(n + 1, sizeof *scales);
    if (!w || !tensors || !names || !scales) exit(1);
    for (size_t i = 0; i < n; i++) {
        const struct weight *t = weights_at(w, i);
        size_t length = strlen(t->name);
        bool scaled = length > 7 && strcmp(t->name + length - 7, ".weight") == 0;
        struct header_tensor *out = &tensors[n_out++];
        *out = (struct header_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank};
        memcpy(out->dim, t->dim, sizeof out->dim);
        out->size_bytes = weights_byte_count(t);
        if (!scaled) continue;
        size_t count;
        float *x = values(t, &count), most = 1e-6f;
        for (size_t k = 0; k < count; k++) most = fmaxf(most, fabsf(x[k]));
        free(x);
        scales[i] = most / 448;
        out->dtype = DTYPE_F8_E4M3;
        out->size_bytes = count;
        snprintf(names[i], sizeof names[i], "%.*s.scale_weight", (int)length - 7, t->name);
        tensors[n_out++] = (struct header_tensor){
            .name = names[i], .dtype = DTYPE_F32, .rank = 0, .size_bytes = sizeof(float)};
    }
    struct header header;
    struct dk_error err = {0};
    FILE *f = fopen(to, "wb");
    if (!f ||
        !header_safetensors(&header, tensors, n_out, weights_metadata_at(w, 0),
                            weights_metadata_count(w), &err) ||
        fwrite(header.bytes, header.n_bytes, 1, f) != 1)
        exit(1);
    for (size_t i = 0; i < n; i++) {
        const struct weight *t = weights_at(w, i);
        size_t count;
        float *x = values(t, &count);
        for (size_t k = 0; scales[i] > 0 && k < count; k++) putc(e4m3(x[k] / scales[i]), f);
        if (scales[i] > 0 ? fwrite(&scales[i], sizeof(float), 1, f) != 1
                          : fwrite(t->data, weights_byte_count(t), 1, f) != 1)
            exit(1);
        free(x);
    }
    free(header.bytes);
    free(tensors);
    free(names);
    free(scales);
    weights_close(w);
    return fclose(f) == 0;
}

/* The picture of a file with scales is that of the same values written out. */
static void check_scaled(void)
{
    struct path single = in("whole.safetensors"), scaled = in("scaled.safetensors"),
                wide = in("scaled.wide.safetensors"), half = in("scaled.half.safetensors");
    if (!convert("tests/golden/models/tiny-sd2", single.s, NULL) ||
        !put_scaled(single.s, scaled.s) || !convert(scaled.s, wide.s, "f32") ||
        !convert(scaled.s, half.s, NULL))
        return;
    compare_parts(wide.s, "tests/golden/models/tiny-sd2", false, 0.04);
    compare_parts(half.s, "tests/golden/models/tiny-sd2", false, 0.04);
    struct weights *w = opened(half.s);
    const struct weight *conv = w ? weights_find(w, "unet.conv_in.weight") : NULL;
    CHECK(conv && conv->dtype == DTYPE_F16, "kept as it is, a scaled weight is to become f16");
    weights_close(w);
    struct dk_image a = {0}, b = {0};
    picture_of(scaled.s, &a);
    picture_of(wide.s, &b);
    CHECK(a.rgb && b.rgb && memcmp(a.rgb, b.rgb, 64 * 64 * 3) == 0, "the pictures differ");
    dk_image_free(&a);
    dk_image_free(&b);
}

int main(void)
{
    if (!scratch_open("convert")) return 1;
    check_f16();
    check_quantised();
    check_k_types();
    check_round_trips();
    check_metadata();
    check_small();
    check_scaled();
    if (!scratch_close()) return 1;
    return check_end("convert");
}
