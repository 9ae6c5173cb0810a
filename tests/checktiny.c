/* checktiny.c - tiny decoders: numbers, spellings, damage, and what the pipeline makes of them. */
/* SPDX-License-Identifier: MIT */

#include "check.h"
#include "files/image.h"
#include "golden.h"
#include "netbench.h"
#include "nets/tiny.h"
#include "pipeline/memory.h"
#include "scratch.h"

#include <unistd.h>

#define DATA "tests/golden/tiny/"

static const double TOLERANCE = 2e-5;

/* A decoder with its weights; both NULL after a failure, which is then in b->err. */
struct opened {
    struct weights *weights;
    struct tiny *tiny;
};

static struct opened open_tiny(struct bench *b, const char *path)
{
    struct opened o = {.weights = weights_open(path, &b->err)};
    struct weights *part = o.weights ? weights_part(o.weights, "vae_tiny") : NULL;
    const struct tiny_config any = {0};
    if (part) o.tiny = tiny_load(&any, part, &b->err);
    return o;
}

static void close_tiny(struct opened *o)
{
    tiny_free(o->tiny);
    weights_close(o->weights);
}

/* The named array, [n, c, h, w] in the file, as [n, h, w, c] in the arena. */
static struct tensor take(struct bench *b, const struct golden *g, const char *name, int64_t n,
                          int64_t h, int64_t w, int64_t c)
{
    size_t count;
    float *values = golden_get(g, &count, "%s", name);
    struct tensor t = tensor_new4(&b->arena, n, h, w, c, &b->err);
    bool fits = values && (int64_t)count == tensor_count(t);
    CHECK(fits, "%s: not of the shape expected", name);
    for (int64_t i = 0; fits && i < tensor_count(t); i++) {
        int64_t channel = i % c, cell = i / c % (h * w), sample = i / c / (h * w);
        t.data[i] = values[(sample * c + channel) * h * w + cell];
    }
    free(values);
    return t;
}

static void check_case(struct bench *b, const struct tiny *tiny, const char *name, int64_t n,
                       int64_t h, int64_t w, const char *what)
{
    struct golden g = golden_open(DATA "golden.safetensors");
    size_t mark = arena_mark(&b->arena);
    char z_name[64], out_name[64];
    int64_t f = tiny_factor(tiny);
    snprintf(z_name, sizeof z_name, "%s.z", name);
    snprintf(out_name, sizeof out_name, "%s.out", name);
    struct tensor z = take(b, &g, z_name, n, h, w, 4);
    struct tensor want = take(b, &g, out_name, n, h * f, w * f, 3);
    struct tensor y = tiny_decode(tiny, &b->ops, z);
    bool same_shape = y.rank == 4 && tensor_count(y) == tensor_count(want);
    CHECK(same_shape, "%s of %s: %s", name, what, b->err.message);
    double worst =
        same_shape ? check_distance(y.data, want.data, (size_t)tensor_count(y)) : INFINITY;
    CHECK(worst <= TOLERANCE, "%s of %s with %s: off by %g", name, what, b->kernels.level, worst);
    arena_reset(&b->arena, mark);
    golden_close(&g);
}

static void check_numbers(struct bench *b)
{
    static const char *const same[] = {DATA "vae_tiny", DATA "taesd_decoder.safetensors",
                                       DATA "taesd_decoder.pth", DATA "combined.safetensors"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct opened o = open_tiny(b, same[i]);
        CHECK(o.tiny, "%s: %s", same[i], b->err.message);
        if (o.tiny) {
            CHECK(tiny_factor(o.tiny) == 8 && tiny_latent_channels(o.tiny) == 4, "%s", same[i]);
            CHECK(weights_kind(o.weights) == WEIGHTS_TINY, "%s: is %s", same[i],
                  weights_kind_name(weights_kind(o.weights)));
            check_case(b, o.tiny, "even.a8x8", 1, 8, 8, same[i]);
            if (i == 0) check_case(b, o.tiny, "even.b5x3", 2, 5, 3, same[i]);
        }
        close_tiny(&o);
    }
    struct opened o = open_tiny(b, DATA "odd_decoder.safetensors");
    CHECK(o.tiny, "odd: %s", b->err.message);
    if (o.tiny) check_case(b, o.tiny, "odd.a7x6", 1, 7, 6, "odd_decoder");
    close_tiny(&o);
}

/* However it is cut, the picture is the same up to rounding; and one thread draws what two do. */
static void check_bands(struct bench *b)
{
    struct opened o = open_tiny(b, DATA "vae_tiny");
    if (!o.tiny) return;
    size_t mark = arena_mark(&b->arena);
    struct tensor z = tensor_new4(&b->arena, 1, 21, 10, 4, &b->err);
    for (int64_t i = 0; i < tensor_count(z); i++) z.data[i] = sinf((float)i) * 2;
    struct tensor whole = tiny_decode_bands(o.tiny, &b->ops, z, 4, 1 << 20);
    double largest = 0;
    for (int64_t i = 0; i < tensor_count(whole); i++)
        largest = fmax(largest, fabs((double)whole.data[i]));
    static const struct {
        int first;
        int64_t rows;
    } cuts[] = {{4, 8}, {3, 8}, {3, 31}, {3, 1 << 20}, {2, 16}, {1, 24}, {1, 1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        size_t inner = arena_mark(&b->arena);
        struct tensor y = tiny_decode_bands(o.tiny, &b->ops, z, cuts[i].first, cuts[i].rows);
        bool fits = y.rank == 4 && tensor_count(y) == tensor_count(whole);
        double worst =
            fits ? check_distance(y.data, whole.data, (size_t)tensor_count(y)) : INFINITY;
        CHECK(worst <= 4e-6 * largest, "from level %d in bands of %d rows: off by %g of %g: %s",
              cuts[i].first, (int)cuts[i].rows, worst, largest, b->err.message);
        arena_reset(&b->arena, inner);
    }
    b->ops.n_threads = 1;
    struct tensor alone = tiny_decode(o.tiny, &b->ops, z);
    CHECK(alone.rank == 4 &&
              memcmp(alone.data, whole.data, (size_t)tensor_count(whole) * sizeof *whole.data) == 0,
          "one thread draws another picture than two");
    b->ops.n_threads = 2;
    arena_reset(&b->arena, mark);
    close_tiny(&o);
}

/* Of the maps of pixels, three of which would be held, there are bands only. */
static void check_memory(struct bench *b)
{
    struct opened o = open_tiny(b, DATA "vae_tiny");
    struct arena dry;
    if (!o.tiny || !arena_open(&dry, 0, &b->err)) return;
    dry.dry = true;
    struct ops ops = b->ops;
    ops.arena = &dry;
    size_t peak[2];
    for (int i = 0; i < 2; i++) {
        arena_reset(&dry, 0);
        dry.peak_bytes = 0;
        struct tensor z = tensor_new4(&dry, 1, 256, 256, 4, &b->err);
        if (i == 0)
            tiny_decode(o.tiny, &ops, z);
        else
            tiny_decode_bands(o.tiny, &ops, z, 4, 1 << 20);
        peak[i] = dry.peak_bytes;
    }
    size_t map = (size_t)2048 * 2048 * 8 * sizeof(float); /* 134 MB */
    CHECK(b->err.code == DK_OK && peak[1] > map && peak[0] < peak[1] / 2,
          "2048 x 2048 pixels take %zu MB, whole %zu MB: %s", peak[0] >> 20, peak[1] >> 20,
          b->err.message);
    arena_close(&dry);
    close_tiny(&o);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* A copy of a file of weights in which one text has become another of the same length. */
static struct path altered(const char *from, const char *what, const char *with)
{
    size_t n;
    unsigned char *bytes = golden_slurp(from, &n);
    struct path to = in("altered.safetensors");
    size_t length = strlen(what), n_found = 0;
    for (size_t i = 0; i + length <= n; i++)
        if (memcmp(bytes + i, what, length) == 0) {
            memcpy(bytes + i, with, length);
            n_found++;
        }
    CHECK(n_found > 0 && strlen(with) == length, "%s: %s is not in it", from, what);
    FILE *file = fopen(to.s, "wb");
    if (file) {
        fwrite(bytes, 1, n, file);
        fclose(file);
    }
    free(bytes);
    return to;
}

static void check_refused(struct bench *b, const char *path, const char *word)
{
    struct opened o = open_tiny(b, path);
    bool refused = !o.tiny && b->err.code == DK_ERROR_MODEL;
    CHECK(refused && strstr(b->err.message, word) && !strchr(b->err.message, '\n'),
          "expected a sentence with \"%s\": %s", word,
          o.tiny              ? "was accepted"
          : b->err.message[0] ? b->err.message
                              : "no sentence");
    b->err = (struct dk_error){.code = DK_OK};
    close_tiny(&o);
}

static void check_damage(struct bench *b)
{
    static const char *const lost[] = {
        "decoder.layers.0.bias",        "decoder.layers.2.conv.0.weight",
        "decoder.layers.2.conv.4.bias", "decoder.layers.3.conv.2.weight",
        "decoder.layers.5.weight",      "decoder.layers.11.weight",
        "decoder.layers.12.weight",     "decoder.layers.12.bias",
    };
    const char *file = DATA "vae_tiny/diffusion_pytorch_model.safetensors";
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        char quoted[80], other[80];
        snprintf(quoted, sizeof quoted, "\"%s\"", lost[i]);
        snprintf(other, sizeof other, "%s", quoted);
        other[strlen(other) - 2] = 'X';
        struct path path = altered(file, quoted, other);
        check_refused(b, path.s, "decoder.layers.");
    }
    check_refused(b, altered(DATA "taesd_decoder.safetensors", "\"1.weight\"", "\"0.weight\"").s,
                  "encoder");
    check_refused(
        b, altered(file, "\"decoder.layers.3.conv.4.bias\"", "\"decoder.layers.3.pool.4.bias\"").s,
        "conv.4.bias");
    struct opened o = {.weights = weights_open(file, &b->err)};
    const struct tiny_config three = {.n_levels = 4, .n_blocks = {2, 1, 2, 0}};
    o.tiny = o.weights ? tiny_load(&three, o.weights, &b->err) : NULL;
    CHECK(!o.tiny && strstr(b->err.message, "level 2 has 1 blocks"), "%s", b->err.message);
    b->err = (struct dk_error){.code = DK_OK};
    close_tiny(&o);
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

#define MODEL "tests/golden/models/tiny-sd1"

/* What a run told on its way. */
struct seen {
    float latent[8 * 8 * 4];
    int n_previews, preview_width_px;
    uint8_t preview[64 * 64 * 3];
};

static void see_progress(void *user, const struct dk_progress *progress)
{
    struct seen *seen = user;
    const struct dk_image *image = progress->preview;
    if (!image) return;
    seen->n_previews++;
    seen->preview_width_px = image->width_px;
    if (image->width_px == 64 && image->height_px == 64)
        memcpy(seen->preview, image->rgb, sizeof seen->preview);
}

static void see_latent(void *user, size_t job, const float *latent, int h, int w, int c)
{
    struct seen *seen = user;
    (void)job;
    if (h * w * c == 8 * 8 * 4) memcpy(seen->latent, latent, sizeof seen->latent);
}

static struct dk_settings settings(void)
{
    struct dk_settings s;
    dk_settings_default(&s);
    s.prompt = "a photo of a cat";
    s.width_px = s.height_px = 64;
    s.n_steps = 2;
    s.scheduler = "ddim";
    return s;
}

/* A picture of 64 x 64, all zeros after a failure; the settings come back resolved. */
struct run {
    uint8_t rgb[64 * 64 * 3];
    struct seen seen;
    struct dk_settings settings;
    size_t peak_bytes, told_bytes;
};

static void make(struct run *run, const char *path, const struct dk_model_options *options,
                 const char *decoder)
{
    struct dk_error err = {.code = DK_OK};
    struct dk_image image = {0};
    struct dk_hooks hooks = {.progress = see_progress, .latent = see_latent, .preview = true};
    *run = (struct run){.settings = settings()};
    hooks.user = &run->seen;
    run->settings.decoder = decoder;
    struct dk_model *model = dk_model_open(path, options, &err);
    bool done = model && dk_resolve(model, &run->settings, NULL, &err) &&
                dk_render(model, &run->settings, 1, &image, &hooks, NULL, &err);
    CHECK(done, "%s: %s", path, err.message);
    if (done && image.width_px == 64 && image.height_px == 64)
        memcpy(run->rgb, image.rgb, sizeof run->rgb);
    if (done) {
        const struct memory_request r = {
            .n = 1,
            .n_chunks = 1,
            .guided = true,
            .tiny_decoder = decoder && strcmp(decoder, "tiny") == 0,
            .width_px = 64,
            .height_px = 64,
        };
        run->peak_bytes = model->arena.peak_bytes;
        run->told_bytes = memory_work_bytes(model, &r);
    }
    dk_image_free(&image);
    dk_model_close(model);
}

static bool same_picture(const struct run *a, const struct run *b)
{
    return memcmp(a->rgb, b->rgb, sizeof a->rgb) == 0;
}

/* The picture that the network alone makes of a run's final latent. */
static void draw(struct bench *b, const float *latent, uint8_t rgb[64 * 64 * 3])
{
    struct opened o = open_tiny(b, DATA "vae_tiny");
    struct dk_image image = {0};
    size_t mark = arena_mark(&b->arena);
    struct tensor z = tensor_new4(&b->arena, 1, 8, 8, 4, &b->err);
    memcpy(z.data, latent, 8 * 8 * 4 * sizeof *latent);
    struct tensor y = tiny_decode(o.tiny, &b->ops, z);
    if (y.rank == 4 && image_from_f32(&image, y.data, 64, 64, &b->err))
        memcpy(rgb, image.rgb, 64 * 64 * 3);
    arena_reset(&b->arena, mark);
    dk_image_free(&image);
    close_tiny(&o);
}

/* A folder with the parts of the test model, and vae_tiny/ too. */
static struct path make_folder(void)
{
    static const char *const parts[] = {"model_index.json", "scheduler", "text_encoder",
                                        "tokenizer",        "unet",      "vae"};
    char here[512], command[2600];
    struct path folder_of = in("model");
    CHECK(getcwd(here, sizeof here), "no current folder");
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir -p '%s'", folder_of.s, folder_of.s);
    bool good = system(command) == 0;
    for (size_t i = 0; good && i < sizeof parts / sizeof *parts; i++) {
        snprintf(command, sizeof command, "ln -s '%s/" MODEL "/%s' '%s/'", here, parts[i],
                 folder_of.s);
        good = system(command) == 0;
    }
    snprintf(command, sizeof command, "ln -s '%s/" DATA "vae_tiny' '%s/'", here, folder_of.s);
    CHECK(good && system(command) == 0, "%s: cannot be made", folder_of.s);
    return folder_of;
}

static void check_pipeline(struct bench *b)
{
    static struct run exact, given, preview_only, own, own_tiny;
    const struct dk_model_options plain = {.n_threads = 2},
                                  taesd = {.n_threads = 2, .taesd = DATA "taesd_decoder.pth"},
                                  previews = {.n_threads = 2,
                                              .taesd = DATA "taesd_decoder.safetensors",
                                              .taesd_preview_only = true};
    struct path model = make_folder();
    make(&exact, MODEL, &plain, NULL);
    make(&given, MODEL, &taesd, NULL);
    make(&preview_only, MODEL, &previews, NULL);
    make(&own, model.s, &plain, NULL);
    make(&own_tiny, model.s, &plain, "tiny");

    CHECK(!exact.settings.decoder, "decoder %s where nobody asked", exact.settings.decoder);
    CHECK(exact.seen.n_previews == 2 && exact.seen.preview_width_px == 8,
          "%d previews, %d pixels wide", exact.seen.n_previews, exact.seen.preview_width_px);
    CHECK(given.settings.decoder && strcmp(given.settings.decoder, "tiny") == 0, "decoder %s",
          given.settings.decoder ? given.settings.decoder : "open");
    CHECK(!same_picture(&exact, &given), "both decoders draw the same");
    CHECK(memcmp(exact.seen.latent, given.seen.latent, sizeof exact.seen.latent) == 0,
          "the decoder changed the latent");
    static uint8_t want[64 * 64 * 3];
    draw(b, given.seen.latent, want);
    CHECK(memcmp(want, given.rgb, sizeof want) == 0, "not what the network makes of the latent");
    CHECK(preview_only.settings.decoder && strcmp(preview_only.settings.decoder, "vae") == 0 &&
              same_picture(&exact, &preview_only),
          "a decoder for previews changed the picture");
    CHECK(preview_only.seen.n_previews == 2 && preview_only.seen.preview_width_px == 64,
          "%d previews, %d pixels wide", preview_only.seen.n_previews,
          preview_only.seen.preview_width_px);
    CHECK(!own.settings.decoder && same_picture(&exact, &own),
          "the folder's own tiny decoder changed the picture");
    CHECK(own.seen.preview_width_px == 64 &&
              memcmp(own.seen.preview, preview_only.seen.preview, sizeof want) == 0,
          "its previews are %d pixels wide", own.seen.preview_width_px);
    CHECK(same_picture(&own_tiny, &given), "its picture is not that of --taesd");
    CHECK(own_tiny.told_bytes < own.told_bytes, "told %zu bytes, with the VAE %zu",
          own_tiny.told_bytes, own.told_bytes);
    CHECK(own.told_bytes > 0 && own_tiny.told_bytes > 0, "nothing told");
}

static void keep_warning(void *user, const char *sentence)
{
    snprintf(user, 1100, "%s", sentence);
}

/* A damaged decoder of the model's own: told, left out, and refused only where it is asked for. */
static void check_own_damaged(void)
{
    static const char *const spoil[] = {
        "truncate -s 5000 '%s'",
        ("printf '\\000\\000\\300\\177' | dd of='%s' bs=1 seek=$(($(stat -c %%s "
         "\"$file\") - 4)) conv=notrunc 2>/dev/null"),
        "rm '%s'"};
    static const char *const words[] = {"download it again", "NaN", "no weights"};
    struct path model = make_folder(), part = in("model/vae_tiny"),
                file = in("model/vae_tiny/diffusion_pytorch_model.safetensors");
    setenv("file", file.s, 1);
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        char command[4000], warning[1100] = "";
        snprintf(command, sizeof command, "rm -rf '%s' && cp -r " DATA "vae_tiny '%s'", part.s,
                 part.s);
        CHECK(system(command) == 0, "%s", command);
        snprintf(command, sizeof command, spoil[i], file.s);
        CHECK(system(command) == 0, "%s", command);
        const struct dk_model_options options = {
            .n_threads = 1, .warn = keep_warning, .user = warning};
        struct dk_error err = {.code = DK_OK};
        struct dk_model *opened = dk_model_open(model.s, &options, &err);
        CHECK(opened, "%s", err.message);
        if (!opened) continue;
        CHECK(strstr(warning, words[i]) && strstr(warning, "without the tiny decoder"), "%s: %s",
              words[i], warning);
        struct dk_model_info info;
        dk_model_get_info(opened, &info);
        CHECK(info.n_parts == 3, "%zu parts", info.n_parts);
        struct dk_settings s = settings();
        CHECK(dk_resolve(opened, &s, NULL, &err), "%s", err.message);
        s.decoder = "tiny";
        CHECK(!dk_resolve(opened, &s, NULL, &err) && err.code == DK_ERROR_MODEL &&
                  strstr(err.message, words[i]),
              "%s", err.message);
        dk_model_close(opened);
    }
}

static void check_open_fails(const char *taesd, const char *word)
{
    struct dk_error err = {.code = DK_OK};
    const struct dk_model_options options = {.n_threads = 1, .taesd = taesd};
    struct dk_model *model = dk_model_open(MODEL, &options, &err);
    CHECK(!model && strstr(err.message, word), "%s: expected \"%s\": %s", taesd, word,
          model ? "was accepted" : err.message);
    dk_model_close(model);
}

static void check_refusals(void)
{
    check_open_fails(DATA "sixteen.safetensors", "TAESD3");
    check_open_fails(DATA "odd_decoder.safetensors", "2 times");
    check_open_fails(MODEL "/vae", "holds a VAE, expected a tiny decoder");
    check_open_fails(DATA "missing.safetensors", "missing.safetensors");
    struct dk_error err = {.code = DK_OK};
    struct dk_model *model = dk_model_open(MODEL, NULL, &err);
    if (!model) return;
    struct dk_settings s = settings();
    s.decoder = "tiny";
    CHECK(!dk_resolve(model, &s, NULL, &err) && err.code == DK_ERROR_ARGUMENT &&
              strstr(err.message, "--taesd"),
          "%s", err.message);
    err = (struct dk_error){.code = DK_OK};
    s.decoder = "huge";
    CHECK(!dk_resolve(model, &s, NULL, &err) && strstr(err.message, "huge"), "%s", err.message);
    dk_model_close(model);
}

int main(void)
{
    static const unsigned kernel_sets[] = {KERNELS_SCALAR, 0};
    if (!scratch_open("checktiny")) return 1;
    for (size_t i = 0; i < 2; i++) {
        struct bench b;
        if (!bench_open(&b, kernel_sets[i], (size_t)8 << 20)) break;
        check_numbers(&b);
        check_bands(&b);
        if (kernel_sets[i] == 0) {
            check_memory(&b);
            check_damage(&b);
            check_pipeline(&b);
            check_refusals();
            check_own_damaged();
        }
        bench_close(&b);
    }
    scratch_close();
    return check_end("checktiny");
}
