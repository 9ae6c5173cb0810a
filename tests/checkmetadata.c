/* checkmetadata.c - text chunks of other programs and of nobody, as the program reads them. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "darkroom.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *program, *folder;

static void name_file(char path[512], const char *name)
{
    snprintf(path, 512, "%s/tests/%s", folder, name);
}

static bool write_png(const char *path, const char *keyword, const char *text)
{
    uint8_t rgb[2 * 2 * 3] = {0};
    struct dk_image image = {2, 2, rgb};
    struct dk_text chunk = {(char *)(uintptr_t)keyword, (char *)(uintptr_t)text};
    struct dk_error err = {0};
    bool ok = dk_png_write(path, &image, &chunk, keyword ? 1 : 0, true, &err);
    CHECK(ok, "%s", err.message);
    return ok;
}

/* Runs the program; its standard output (to be freed) and its status, -1 for a signal. */
static char *run(const char *arguments, const char *path, int *status)
{
    char command[2048];
    snprintf(command, sizeof command, "'%s' %s '%s' 2>'%s/tests/checkmetadata.err'", program,
             arguments, path, folder);
    FILE *pipe = popen(command, "r");
    size_t room = 1 << 22, used = pipe ? 0 : room;
    char *text = calloc(1, room + 1);
    while (pipe && used < room) {
        size_t n = fread(text + used, 1, room - used, pipe);
        if (n == 0) break;
        used += n;
    }
    int ended = pipe ? pclose(pipe) : -1;
    *status = WIFEXITED(ended) && WEXITSTATUS(ended) < 128 ? WEXITSTATUS(ended) : -1;
    return text;
}

static json_t *info(const char *path)
{
    int status;
    char *text = run("info --json", path, &status);
    json_t *object = json_loads(text, 0, NULL);
    CHECK(status == 0 && json_is_object(object), "info: status %d, %.200s", status, text);
    free(text);
    return object;
}

struct expectation {
    const char *key, *value; /* as json_dumps writes it; NULL: the key must not be there */
};

static void expect(const char *parameters, const struct expectation *expected)
{
    char path[512];
    name_file(path, "checkmetadata.png");
    if (!write_png(path, "parameters", parameters)) return;
    json_t *object = info(path);
    for (; expected->key; expected++) {
        const json_t *value = json_object_get(object, expected->key);
        if (!value) value = json_object_get(json_object_get(object, "other"), expected->key);
        char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : NULL;
        bool same = text && expected->value ? strcmp(text, expected->value) == 0
                                            : !text && !expected->value;
        CHECK(same, "%s is %s in place of %s, from:\n%.200s", expected->key, text ? text : "absent",
              expected->value ? expected->value : "absent", parameters);
        free(text);
    }
    json_decref(object);
}
#define EXPECT(parameters, ...)                                                                    \
    expect(parameters, (const struct expectation[]){__VA_ARGS__, {NULL, NULL}})

static void check_grammar(void)
{
    EXPECT("a cat\nNegative prompt: dog\nSteps: 20, Sampler: Euler a, Schedule type: Karras, CFG "
           "scale: 7, Seed: 42, "
           "Size: 512x768, Model hash: 6ce0161689, Model: v1-5, Clip skip: 2, RNG: CPU, Version: "
           "v1.9.4",
           {"prompt", "\"a cat\""}, {"negative", "\"dog\""}, {"steps", "20"},
           {"scheduler", "\"Euler a\""}, {"sigmas", "\"karras\""}, {"guidance", "7"},
           {"seed", "42"}, {"size", "\"512x768\""}, {"model", "\"v1-5\""}, {"clip-skip", "1"},
           {"rng", "\"cpu\""}, {"Version", "\"v1.9.4\""}, {"Model hash", "\"6ce0161689\""},
           {"record", "\"parameters\""});
    /* No RNG means the GPU's noise; automatic schedules are the model's own; the schedule in an
     * older sampler name. */
    EXPECT("x\nSteps: 5, Sampler: DPM++ 2M Karras, CFG scale: 7.5, Seed: 1",
           {"scheduler", "\"DPM++ 2M\""}, {"sigmas", "\"karras\""}, {"rng", "\"nv\""},
           {"guidance", "7.5"}, {"negative", NULL});
    EXPECT("x\nSteps: 5, Sampler: Euler, Schedule type: Automatic, Seed: 1", {"sigmas", NULL},
           {"steps", "5"});
    EXPECT("x\nSteps: 5, Seed: 1, Token merging ratio: 0.5", {"tome", "0.5"});
    EXPECT("x\nSteps: 5, Seed: 1, Token merging ratio: 0.9", {"tome", "0.75"});
    /* stable-diffusion.cpp's numbers, and a final comma. */
    EXPECT("x\nSteps: 5, CFG scale: 7.000000, Seed: 1,", {"guidance", "7"}, {"seed", "1"});
    /* Quoted values. */
    EXPECT("x\nSteps: 5, Sampler: Euler, Seed: 1, Model: \"a, b: c \\\"d\\\"\\n\\u00e9\"",
           {"model", "\"a, b: c \\\"d\\\"\\né\""});
    EXPECT("x\nSteps: 5, Sampler: Euler, Seed: 1, Model: \"open, Size: 8x8",
           {"model", "\"\\\"open\""}, {"size", "\"8x8\""});
    /* Fewer than three settings: all of it is prompt. */
    EXPECT("a house\nSteps: 5, Seed: 1", {"prompt", "\"a house\\nSteps: 5, Seed: 1\""},
           {"steps", NULL});
    EXPECT("Steps: 5, Sampler: Euler, Seed: 1", {"prompt", "\"\""}, {"steps", "5"});
    EXPECT("", {"prompt", "\"\""}, {"seed", NULL});
    /* Lines are stripped, the negative runs over several lines, only the last line is settings. */
    EXPECT(" one \n  two\t\nNegative prompt:  three\nfour\nNegative prompt: five\nSteps: 1, "
           "Sampler: x, Seed: 2\r\n\n",
           {"prompt", "\"one\\ntwo\""}, {"negative", "\"three\\nfour\\nNegative prompt: five\""},
           {"seed", "2"});
    EXPECT("a\nSteps: 9, Sampler: x, Seed: 9\nSteps: 1, Sampler: y, Seed: 2",
           {"prompt", "\"a\\nSteps: 9, Sampler: x, Seed: 9\""}, {"steps", "1"});
    EXPECT("a\nNegative prompt:\nSteps: 1, Sampler: x, Seed: 2", {"negative", "\"\""});
    /* What does not fit an option is shown as it stands. */
    EXPECT("a\nSteps: many, Sampler: x, Seed: -7, Size: big", {"steps", "\"many\""},
           {"size", "\"big\""}, {"seed", "\"-7\""});
    EXPECT("テスト, café\nSteps: 1, Sampler: x, Seed: 2, Größe: 3", {"prompt", "\"テスト, café\""},
           {"Größe", "\"3\""});
    /* JSON of other programs is not taken for a prompt. */
    EXPECT("{\"sui_image_params\": {\"prompt\": \"x\"}}", {"prompt", NULL}, {"record", "null"});
}

/* --from: what it makes of a record, by a dry run that needs no picture. */
static void check_from(const char *keyword, const char *text, int want, const char *in_stderr)
{
    char path[512], err_path[512], sentence[4096] = "";
    name_file(path, "checkmetadata.png");
    name_file(err_path, "checkmetadata.err");
    if (!write_png(path, keyword, text)) return;
    int status;
    free(run("render --dry-run --from", path, &status));
    FILE *err = fopen(err_path, "r");
    size_t n = err ? fread(sentence, 1, sizeof sentence - 1, err) : 0;
    sentence[n] = '\0';
    if (err) fclose(err);
    CHECK(status == want && strstr(sentence, in_stderr),
          "status %d (expected %d), \"%s\" without \"%s\", from %.200s", status, want, sentence,
          in_stderr, text);
}

static void check_records(void)
{
    check_from("darkroom", "{\"prompt\":\"a\",\"seed\":7,\"steps\":3,\"future-key\":[1]}", 0, "");
    check_from("darkroom", "{\"prompt\":\"a\",\"seed\":\"18446744073709551615\"}", 0, "");
    check_from("darkroom", "{}", 0, "lacks prompt, seed, size, steps, scheduler, guidance, model");
    check_from("darkroom", "{\"size\":\"61x64\"}", 1,
               "checkmetadata.png: its record is not usable: ");
    check_from("darkroom", "{\"scheduler\":\"eulr\"}", 1,
               "checkmetadata.png: its record is not usable: ");
    check_from("darkroom", "{\"steps\":\"x\"}", 1, "--steps: found \"x\"");
    check_from("darkroom", "{\"steps\":1e999}", 1, "not a JSON object");
    check_from("darkroom", "{\"steps\":[3]}", 1, "found a JSON array");
    check_from("darkroom", "{\"guidance\":true}", 1, "found a JSON boolean");
    check_from("darkroom", "{\"no-prompt-syntax\":\"maybe\"}", 1, "takes none");
    check_from("darkroom", "{\"prompt\":\"a\\u0000b\"}", 1, "not a JSON object");
    check_from("darkroom", "{\"steps\":1,\"steps\":2}", 1, "not a JSON object");
    check_from("darkroom", "[1,2,3]", 1, "not a JSON object");
    check_from("darkroom", "null", 1, "not a JSON object");
    check_from("darkroom", "", 1, "not a JSON object");
    /* A picture cannot make the program load code, write a file or read another picture. */
    check_from("darkroom", "{\"scheduler\":\"./evil.so\"}", 2,
               "repeat it as --scheduler if you trust it");
    check_from("darkroom",
               "{\"output\":\"/etc/passwd\",\"force\":true,\"from\":\"x\",\"dry-run\":false}", 0,
               "");
    check_from("darkroom", "{\"model\":\"no/such/model\"}", 1, "no/such/model");
    check_from("parameters", "a cat\nSteps: 3, Sampler: Euler, Seed: 7, Size: 64x64, RNG: CPU", 0,
               "A1111's text is followed");
    check_from("parameters", "just words", 0, "A1111's text is followed");
    check_from("parameters", "a\nSteps: many, Sampler: Euler, Seed: 7", 1,
               "--steps: found \"many\"");
    check_from("Comment", "nothing", 1, "holds no settings");

    char *deep = calloc(1, 200001);
    memset(deep, '[', 200000);
    check_from("darkroom", deep, 1, "not a JSON object");
    memset(deep, 'a', 200000);
    check_from("parameters", deep, 0, "A1111's text is followed");
    for (size_t i = 0; i < 200000; i += 2) memcpy(deep + i, "a:", 2);
    check_from("parameters", deep, 0, "A1111's text is followed");
    for (size_t i = 0; i < 200000; i += 4) memcpy(deep + i, "aa:\"", 4);
    check_from("parameters", deep, 0, "A1111's text is followed");
    free(deep);
}

/* What was typed is not the record's fault, and an empty note is none. */
static void check_blame(void)
{
    char path[512], err_path[512], sentence[4096] = "";
    int status;
    name_file(path, "checkmetadata.png");
    name_file(err_path, "checkmetadata.err");
    write_png(path, "darkroom", "{\"cpu\":\"\",\"darkroom\":\"\",\"model-fingerprint\":\"\"}");
    free(run("render --size 61x64 --dry-run --from", path, &status));
    CHECK(status == 2, "a size that was typed: status %d", status);
    free(run("render --dry-run --from", path, &status));
    FILE *err = fopen(err_path, "r");
    size_t n = err ? fread(sentence, 1, sizeof sentence - 1, err) : 0;
    sentence[n] = '\0';
    if (err) fclose(err);
    CHECK(status == 0 && !strstr(sentence, "was made") && !strstr(sentence, "not the one"),
          "status %d, %s", status, sentence);
}

/* An exact record names all it needs; what is missing is told. */
static void check_lacking(void)
{
    static const char *const texts[] = {
        "{}", "{\"prompt\":\"a\",\"seed\":1,\"steps\":2}",
        ("{\"prompt\":\"a\",\"seed\":1,\"size\":\"64x64\",\"steps\":2,\"scheduler\":\"ddim\","
         "\"guidance\":1,\"model\":null}")};
    static const char *const lines[] = {
        "incomplete: it lacks prompt, seed, size, steps, scheduler, guidance, model",
        "incomplete: it lacks size, scheduler, guidance, model", "exact: "};
    static const char *const lacking[] = {"prompt, seed, size, steps, scheduler, guidance, model",
                                          "size, scheduler, guidance, model", NULL};
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        int status;
        name_file(path, "checkmetadata.png");
        write_png(path, "darkroom", texts[i]);
        char *text = run("info", path, &status);
        CHECK(status == 0 && strstr(text, lines[i]), "%s in place of %s", text, lines[i]);
        free(text);
        json_t *object = info(path);
        const char *said = json_string_value(json_object_get(object, "lacking"));
        CHECK(lacking[i] ? said && strcmp(said, lacking[i]) == 0 : !said, "%s",
              said ? said : "nothing");
        json_decref(object);
    }
}

/* No escape sequence of a picture reaches the terminal. */
static void check_controls(void)
{
    char path[512];
    int status;
    name_file(path, "checkmetadata.png");
    write_png(path, "parameters",
              "\033]0;evil\007\xC2\x9B"
              "31m\nSteps: 1, Sampler: \033[2J, Seed: 2, K\xC2\x85y: 3");
    char *text = run("info", path, &status);
    CHECK(status == 0 && !strpbrk(text, "\033\007") && !strstr(text, "\xC2\x9B"),
          "control characters in %s", text);
    CHECK(strstr(text, "\\x1b]0;evil\\x07\\xc2\\x9b31m") != NULL, "%s", text);
    free(text);
    write_png(path, "darkroom", "{\"prompt\":\"\\u001b[31m\",\"\\u001b[2J\":\"x\",\"k\\u009b\":1}");
    text = run("info", path, &status);
    CHECK(status == 0 && !strchr(text, '\033') && !strstr(text, "\xC2\x9B"),
          "control characters in %s", text);
    free(text);
}

static size_t read_file(const char *path, unsigned char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, room, file) : 0;
    if (file) fclose(file);
    return n;
}

static void write_file(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(bytes, 1, n, file);
    fclose(file);
}

/* Every truncation and many altered bytes: a sentence or an answer, never a signal. */
static void check_damage(void)
{
    char path[512];
    unsigned char bytes[4096], altered[4096];
    int status, n_signals = 0;
    name_file(path, "checkmetadata.png");
    write_png(path, "darkroom", "{\"prompt\":\"a cat\",\"seed\":7}");
    size_t n = read_file(path, bytes, sizeof bytes);
    CHECK(n > 100, "%zu bytes", n);
    for (size_t cut = 0; cut < n; cut += 7) {
        write_file(path, bytes, cut);
        free(run("info", path, &status));
        n_signals += status < 0 || status > 2;
    }
    uint32_t random = 12345;
    for (int i = 0; i < 150; i++) {
        memcpy(altered, bytes, n);
        random = random * 1664525u + 1013904223u;
        altered[random % n] = (unsigned char)(random >> 24);
        write_file(path, altered, n);
        free(run(i % 2 ? "info --json" : "render --dry-run --from", path, &status));
        n_signals += status < 0 || status > 2;
    }
    CHECK(n_signals == 0, "%d ends that are no answer", n_signals);
}

int main(void)
{
    program = getenv("DARKROOM");
    folder = getenv("BUILD");
    if (!program || !folder) {
        printf("checkmetadata: run through tests/run.sh\n");
        return 1;
    }
    setenv("DARKROOM_MODELS", "models", 0);
    check_grammar();
    check_records();
    check_blame();
    check_lacking();
    check_controls();
    check_damage();
    return check_end("checkmetadata");
}
