/* checkfolders.c - model folders as people have them: pickles, shards, and no tokenizer. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "darkroom.h"
#include "files/weights.h"
#include "picture.h"
#include "scratch.h"

#include <stdint.h>
#include <string.h>

#define MODEL "tests/golden/models/tiny-sd2"

/* ---- a file as torch.save writes it ---------------------------------------------------------- */

struct buffer {
    unsigned char *bytes;
    size_t n, room;
};

static void put(struct buffer *b, const void *data, size_t n)
{
    while (b->n + n > b->room) {
        b->room = b->room ? 2 * b->room : 4096;
        b->bytes = realloc(b->bytes, b->room);
        if (!b->bytes) exit(1);
    }
    memcpy(b->bytes + b->n, data, n);
    b->n += n;
}

static void put_text(struct buffer *b, const char *text)
{
    put(b, text, strlen(text));
}

static void put_number(struct buffer *b, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++, value >>= 8)
        put(b, &(unsigned char){(unsigned char)(value & 0xff)}, 1);
}

/* BINUNICODE and BININT. */
static void put_string(struct buffer *b, const char *text)
{
    put_text(b, "X");
    put_number(b, strlen(text), 4);
    put_text(b, text);
}

static void put_int(struct buffer *b, int64_t value)
{
    put_text(b, "J");
    put_number(b, (uint64_t)value, 4);
}

#define ORDERED_DICT "ccollections\nOrderedDict\n)R"

static void put_tensor(struct buffer *b, const struct weight *w, size_t key)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", key);
    put_string(b, w->name);
    put_text(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_string(b, "storage");
    put_text(b, w->dtype == DTYPE_F16 ? "ctorch\nHalfStorage\n" : "ctorch\nFloatStorage\n");
    put_string(b, text);
    put_string(b, "cpu");
    put_int(b, (int64_t)weights_value_count(w));
    put_text(b, "tQ");
    put_int(b, 0);
    put_text(b, "(");
    for (int i = 0; i < w->rank; i++) put_int(b, w->dim[i]);
    put_text(b, "t(");
    for (int i = 0; i < w->rank; i++) {
        int64_t stride = 1;
        for (int k = i + 1; k < w->rank; k++) stride *= w->dim[k];
        put_int(b, stride);
    }
    put_text(b, "t\x89" ORDERED_DICT "tR");
}

/* An entry of the archive, and its line of the directory. No check sum: nobody looks at it. */
static void put_entry(struct buffer *zip, struct buffer *directory, const char *name,
                      const void *data, size_t n)
{
    size_t at = zip->n;
    for (int central = 0; central < 2; central++) {
        struct buffer *b = central ? directory : zip;
        put(b, central ? "PK\1\2\0\0" : "PK\3\4", central ? 6 : 4);
        put_number(b, 0, 14); /* version, flags, method 0, time, sum */
        put_number(b, n, 4);
        put_number(b, n, 4);
        put_number(b, strlen(name), 2);
        put_number(b, 0, 2);
        if (central) put_number(b, 0, 10), put_number(b, at, 4);
        put_text(b, name);
    }
    put(zip, data, n);
}

/* Appends the directory and writes the archive of n entries; frees both. */
static void put_archive(const char *path, struct buffer *zip, struct buffer *directory, size_t n)
{
    size_t at = zip->n;
    put(zip, directory->bytes, directory->n);
    put(zip, "PK\5\6\0\0\0", 8);
    put_number(zip, n, 2);
    put_number(zip, n, 2);
    put_number(zip, directory->n, 4);
    put_number(zip, at, 4);
    put_number(zip, 0, 2);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(zip->bytes, zip->n, 1, f) != 1 || fclose(f) != 0) exit(1);
    free(zip->bytes);
    free(directory->bytes);
}

/* Every tensor of w from first on, each step-th. */
static void put_pickle(const char *path, const struct weights *w, size_t first, size_t step)
{
    struct buffer program = {0}, zip = {0}, directory = {0};
    put_text(&program, "\x80\x02" ORDERED_DICT "(");
    for (size_t i = first; i < weights_count(w); i += step)
        put_tensor(&program, weights_at(w, i), i);
    put_text(&program, "u}"); /* a module's versions, as an attribute of the dict */
    put_string(&program, "_metadata");
    put_text(&program, ORDERED_DICT "sb.");
    put_entry(&zip, &directory, "archive/data.pkl", program.bytes, program.n);
    size_t n = 1;
    for (size_t i = first; i < weights_count(w); i += step, n++) {
        char name[64];
        const struct weight *t = weights_at(w, i);
        snprintf(name, sizeof name, "archive/data/%zu", i);
        put_entry(&zip, &directory, name, t->data, weights_byte_count(t));
    }
    free(program.bytes);
    put_archive(path, &zip, &directory, n);
}

/* ---- a folder of pickles --------------------------------------------------------------------- */

static void run(const char *format, const char *path)
{
    char command[2400];
    snprintf(command, sizeof command, format, path, path);
    if (system(command) != 0) {
        printf("cannot: %s\n", command);
        exit(1);
    }
}

static void put_file(const char *name, const char *text)
{
    FILE *f = fopen(in(name).s, "wb");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0) exit(1);
}

static struct weights *opened(const char *path)
{
    struct dk_error err = {0};
    struct weights *w = weights_open(path, &err);
    CHECK(w, "%s: %s", path, err.message);
    return w;
}

/* The index of two shards, of which the second has every other tensor. */
static void put_index(const char *name, const struct weights *w)
{
    FILE *f = fopen(in(name).s, "wb");
    if (!f) exit(1);
    fputs("{\"weight_map\":{", f);
    for (size_t i = 0; i < weights_count(w); i++)
        fprintf(f, "%s\"%s\":\"diffusion_pytorch_model-0000%zu-of-00002.bin\"", i ? "," : "",
                weights_at(w, i)->name, i % 2 + 1);
    fputs("}}", f);
    if (fclose(f) != 0) exit(1);
}

static void same_tensors(const char *a, const char *b)
{
    struct weights *x = opened(a), *y = opened(b);
    CHECK(x && y && weights_count(x) == weights_count(y), "%s has not the tensors of %s", b, a);
    for (size_t i = 0; x && y && i < weights_count(x); i++) {
        const struct weight *s = weights_at(x, i), *t = weights_find(y, s->name);
        bool same = t && t->dtype == s->dtype && t->rank == s->rank &&
                    memcmp(t->dim, s->dim, sizeof s->dim[0] * (size_t)s->rank) == 0 &&
                    memcmp(t->data, s->data, weights_byte_count(s)) == 0;
        CHECK(same, "%s: %s differs", b, s->name);
    }
    weights_close(x);
    weights_close(y);
}

/* The U-Net in two shards, the text encoder as transformers names it, the VAE as an fp16 variant.
 */
static void check_pickles(void)
{
    struct path model = in("model");
    run("cp -r " MODEL " '%s' && rm -f '%s'/*/*.safetensors", model.s);
    struct weights *unet = opened(MODEL "/unet"), *vae = opened(MODEL "/vae"),
                   *text = opened(MODEL "/text_encoder");
    if (!unet || !vae || !text) return;
    put_pickle(in("model/unet/diffusion_pytorch_model-00001-of-00002.bin").s, unet, 0, 2);
    put_pickle(in("model/unet/diffusion_pytorch_model-00002-of-00002.bin").s, unet, 1, 2);
    put_index("model/unet/diffusion_pytorch_model.bin.index.json", unet);
    put_pickle(in("model/vae/diffusion_pytorch_model.fp16.bin").s, vae, 0, 1);
    put_pickle(in("model/text_encoder/pytorch_model.bin").s, text, 0, 1);
    same_tensors(MODEL "/unet", in("model/unet").s);
    same_tensors(MODEL "/vae", in("model/vae").s);
    same_tensors(MODEL "/text_encoder", in("model/text_encoder").s);
    struct dk_image a = {0}, b = {0};
    if (picture_of(MODEL, &a) && picture_of(model.s, &b))
        CHECK(memcmp(a.rgb, b.rgb, 64 * 64 * 3) == 0, "the pictures differ");
    dk_image_free(&a);
    dk_image_free(&b);

    /* A pickle beside a safetensors file is not even looked at. */
    run("cp " MODEL "/vae/*.safetensors '%s/vae/'", model.s);
    put_file("model/vae/diffusion_pytorch_model.bin", "no pickle");
    same_tensors(MODEL "/vae", in("model/vae").s);
    run("cp " MODEL "/unet/diffusion_pytorch_model.safetensors "
        "'%s/unet/diffusion_pytorch_model.fp16.safetensors'",
        model.s);
    put_file("model/unet/diffusion_pytorch_model.bin.index.json", "no JSON");
    same_tensors(MODEL "/unet", in("model/unet").s);

    /* A shard that is missing, a folder with one pickle of another name, one with none. */
    put_index("model/unet/diffusion_pytorch_model.bin.index.json", unet);
    run("rm '%s'/unet/*.safetensors '%s'/unet/*-00002-of-00002.bin", model.s);
    struct dk_error err = {0};
    struct weights *w = weights_open(in("model/unet").s, &err);
    CHECK(!w && strstr(err.message, "00002-of-00002.bin: cannot open"), "%s", err.message);
    run("mkdir '%s'/other", model.s);
    put_pickle(in("model/other/any.bin").s, vae, 0, 1);
    same_tensors(MODEL "/vae", in("model/other").s);
    weights_close(unet);
    weights_close(vae);
    weights_close(text);
}

/* An empty tensor of a name that means something; any other is refused. */
static void check_marker(const char *name, bool is_marker)
{
    struct buffer program = {0}, zip = {0}, directory = {0};
    const struct weight empty = {.name = name, .dtype = DTYPE_F32, .rank = 1};
    const struct weight one = {
        .name = "time_embedding.linear_1.weight", .dtype = DTYPE_F32, .rank = 1, .dim = {1}};
    put_text(&program, "\x80\x02" ORDERED_DICT "(");
    put_tensor(&program, &one, 0);
    put_tensor(&program, &empty, 1);
    put_text(&program, "u.");
    put_entry(&zip, &directory, "a/data.pkl", program.bytes, program.n);
    put_entry(&zip, &directory, "a/data/0", "\0\0\0", 4);
    put_entry(&zip, &directory, "a/data/1", "", 0);
    struct path path = in("marker.ckpt");
    put_archive(path.s, &zip, &directory, 3);
    free(program.bytes);
    struct dk_error err = {0};
    struct weights *w = weights_open(path.s, &err);
    CHECK((w != NULL) == is_marker, "%s: %s", name, err.message);
    CHECK(!w || (weights_metadata(w, name) && weights_count(w) == 1), "%s is no marker", name);
    weights_close(w);
}

/* ---- no tokenizer ---------------------------------------------------------------------------- */

struct warnings {
    int n;
    char last[500];
};

static void keep_warning(void *user, const char *sentence)
{
    struct warnings *w = user;
    w->n++;
    snprintf(w->last, sizeof w->last, "%s", sentence);
}

static struct warnings warnings_of(const char *path, const char *tokenizer)
{
    struct warnings w = {0};
    struct dk_error err = {0};
    struct dk_model_options options = {.tokenizer = tokenizer, .warn = keep_warning, .user = &w};
    struct dk_model *model = dk_model_open(path, &options, &err);
    CHECK(model, "%s: %s", path, err.message);
    dk_model_close(model);
    return w;
}

static void check_vocabulary(void)
{
    struct warnings w = warnings_of(MODEL ".ldm.safetensors", NULL);
    CHECK(w.n == 1 && strstr(w.last, "1000 tokens") && strstr(w.last, "first 486 merges") &&
              strstr(w.last, "--tokenizer DIR"),
          "%d warnings: %s", w.n, w.last);
    w = warnings_of(MODEL ".ldm.safetensors", MODEL "/tokenizer");
    CHECK(w.n == 0, "with a tokenizer: %s", w.last);
    w = warnings_of(MODEL, NULL);
    CHECK(w.n == 0, "a folder with one: %s", w.last);
    w = warnings_of("tests/golden/models/tiny-sd1.ldm.safetensors", NULL);
    CHECK(w.n == 0, "CLIP's vocabulary: %s", w.last);
    w = warnings_of("tests/golden/models/tiny-sdxl.ldm.safetensors", NULL);
    CHECK(w.n == 2 && strstr(w.last, "tokenizer_2"), "two encoders: %d, %s", w.n, w.last);
}

/* ---- links that lead nowhere ----------------------------------------------------------------- */

static void check_link(const char *name)
{
    struct path link = in(name), model = in("linked");
    run("rm -rf '%s' && cp -r " MODEL " '%s'", model.s);
    run("rm -rf '%s' && ln -s gone '%s'", link.s);
    struct dk_error err = {0};
    struct dk_model *m = dk_model_open(model.s, NULL, &err);
    CHECK(!m && err.code == DK_ERROR_FILE && strstr(err.message, link.s) &&
              strstr(err.message, "is a link to gone, which does not exist"),
          "%s: %s", name, m ? "was opened" : err.message);
    dk_model_close(m);
}

static void check_links(void)
{
    static const char *const names[] = {"linked/unet",
                                        "linked/vae",
                                        "linked/text_encoder",
                                        "linked/text_encoder_2",
                                        "linked/tokenizer",
                                        "linked/scheduler",
                                        "linked/unet/config.json",
                                        "linked/unet/diffusion_pytorch_model.safetensors",
                                        "linked"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_link(names[i]);
    struct dk_error err = {0};
    run("rm -rf '%s' && ln -s gone '%s'", in("linked").s);
    char *found = dk_model_find(in("linked").s, &err);
    CHECK(found, "%s", err.message);
    dk_free(found);
    err = (struct dk_error){0};
    found = dk_model_find("", &err);
    CHECK(!found && err.code == DK_ERROR_ARGUMENT && strstr(err.message, "empty"), "%s",
          found ? found : err.message);
    dk_free(found);
}

int main(void)
{
    if (!scratch_open("folders")) return 1;
    check_pickles();
    check_marker("v_pred", true);
    check_marker("ztsnr", true);
    check_marker("w_pred", false);
    check_vocabulary();
    check_links();
    if (!scratch_close()) return 1;
    return check_end("folders");
}
