/* output.c - where files go: names from templates, numbers against collisions, early checks. */
/* SPDX-License-Identifier: MIT */
#include "output.h"

#include "interrupt.h"
#include "say.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_NAME "darkroom-{seed}.png"
#define MAX_FIELD_BYTES                                                                            \
    160 /* of a file name's 255: room for the rest of the template and a number */
#define DEFAULT_TEXT_LENGTH 60
#define MAX_NUMBER          100000

/* ---- templates ----------------------------------------------------------------------------- */

struct field {
    char name[32];
    int width; /* digits for numbers, characters for text; 0: as it comes */
};

/* Reads "{name}" or "{name:width}" at *at (behind the brace) and moves behind it. */
static bool read_field(const char *template, const char **at, struct field *field,
                       struct dk_error *err)
{
    const char *close = strchr(*at, '}');
    size_t n = close ? (size_t)(close - *at) : 0;
    const char *colon = n ? memchr(*at, ':', n) : NULL;
    size_t name_bytes = colon ? (size_t)(colon - *at) : n;
    int64_t width = 0;
    bool ok = close && name_bytes > 0 && name_bytes < sizeof field->name;
    if (ok && colon) {
        char digits[8] = "";
        size_t n_digits = n - name_bytes - 1;
        ok = n_digits > 0 && n_digits < sizeof digits;
        if (ok) memcpy(digits, colon + 1, n_digits);
        ok = ok && text_to_integer(digits, &width) && width >= 1 && width <= 200;
    }
    if (!ok)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "--output: \"%.200s\": expected {name} or {name:width} (1 to 200) after a "
                        "brace; write {{ for a brace itself",
                        template);
    snprintf(field->name, sizeof field->name, "%.*s", (int)name_bytes, *at);
    field->width = (int)width;
    *at = close + 1;
    return true;
}

/* Settings only: --from or --quiet say nothing about a picture. */
static const struct option *field_option(const char *name)
{
    const struct option *option = option_find(name, strlen(name));
    bool is_side =
        option && (strcmp(option->name, "width") == 0 || strcmp(option->name, "height") == 0);
    return is_side || (option && option->use == USE_RECORDED) ? option : NULL;
}

static bool check_field(const char *name, struct dk_error *err)
{
    if (strcmp(name, "index") == 0 || field_option(name)) return true;
    const char *near = option_nearest(name, COMMAND_RENDER);
    return say_fail(err, DK_ERROR_ARGUMENT,
                    "--output: {%s}: unknown field%s%s%s; use {index}, {model} or an option that "
                    "is a setting",
                    name, near ? ", did you mean {" : "", near ? near : "", near ? "}?" : "");
}

/* True if c may stand in a name on every common file system and needs no quotes in a shell. */
static bool is_safe(unsigned char c)
{
    return c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || strchr("-_.,+=@", c);
}

/* At most max_characters and MAX_FIELD_BYTES of text, cut between characters; no dash or dot at the
 * ends. */
static void put_safely(FILE *out, const char *text, int max_characters)
{
    char name[MAX_FIELD_BYTES + 1];
    size_t used = 0, n_bytes = strlen(text);
    int n_characters = 0;
    bool gap = false;
    for (size_t i = 0; i < n_bytes && n_characters < max_characters;) {
        size_t n = text_utf8_length(text + i, n_bytes - i);
        bool safe = n > 0 && text[i] > 0 ? is_safe((unsigned char)text[i]) : n > 1;
        if (n == 2 && (unsigned char)text[i] == 0xC2 && (unsigned char)text[i + 1] < 0xA0)
            safe = false; /* C1 */
        if (!safe || (used == 0 && strchr("-.", text[i]))) {
            gap = used > 0;
            i += n ? n : 1;
            continue;
        }
        if (used + n + gap > MAX_FIELD_BYTES || n_characters + gap >= max_characters) break;
        if (gap) name[used++] = '-', n_characters++;
        memcpy(name + used, text + i, n);
        used += n;
        n_characters++;
        gap = false;
        i += n;
    }
    while (used > 0 && strchr("-.", name[used - 1])) used--;
    fwrite(name, 1, used, out);
}

static void put_digits(FILE *out, const char *digits, int width)
{
    for (int n = (int)strlen(digits); n < width; n++) fputc('0', out);
    fputs(digits, out);
}

static void put_field(FILE *out, const struct field *field, const struct request *request,
                      const char *model_name, int index)
{
    char digits[32];
    if (strcmp(field->name, "index") == 0) {
        snprintf(digits, sizeof digits, "%d", index);
        put_digits(out, digits, field->width);
        return;
    }
    const struct option *option = field_option(field->name);
    int length = field->width ? field->width : DEFAULT_TEXT_LENGTH;
    if (strcmp(option->name, "model") == 0) {
        put_safely(out, model_name, length);
        return;
    }
    if (option->kind == OPTION_SEED) {
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)request->settings.seed);
        put_digits(out, digits, field->width);
        return;
    }
    json_t *value = option_get(request, option);
    if (json_is_string(value))
        put_safely(out, json_string_value(value), length);
    else if (json_is_integer(value))
        snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(value)),
            put_digits(out, digits, field->width);
    else if (json_is_real(value))
        fputs(text_from_number(json_real_value(value), digits), out);
    else
        fputs(json_is_true(value) ? "true" : json_is_false(value) ? "false" : "default", out);
    json_decref(value);
}

/* Expands the template into out, or only checks it where out is NULL. *has_own_name: each picture
 * gets its own. */
static bool expand(const char *template, FILE *out, const struct request *request,
                   const char *model_name, int index, bool *has_own_name, struct dk_error *err)
{
    *has_own_name = false;
    for (const char *p = template; *p;) {
        if ((*p == '{' || *p == '}') && p[1] == *p) {
            if (out) fputc(*p, out);
            p += 2;
        } else if (*p == '{') {
            struct field field;
            p++;
            if (!read_field(template, &p, &field, err) || !check_field(field.name, err))
                return false;
            if (strcmp(field.name, "index") == 0 || strcmp(field.name, "seed") == 0)
                *has_own_name = true;
            if (out) put_field(out, &field, request, model_name, index);
        } else {
            if (out) fputc(*p, out);
            p++;
        }
    }
    return true;
}

/* ---- names --------------------------------------------------------------------------------- */

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The dot of the last part's ending, or the end of the path. */
static const char *ending(const char *path)
{
    const char *name = file_name(path), *dot = strrchr(name, '.');
    return dot && dot > name ? dot : path + strlen(path);
}

static bool is_folder(const char *path)
{
    struct stat status;
    size_t n = strlen(path);
    return (n > 0 && path[n - 1] == '/') || (stat(path, &status) == 0 && S_ISDIR(status.st_mode));
}

bool output_check(const struct request *request, struct dk_error *err)
{
    static const char *const others[] = {".jpg", ".jpeg", ".webp", ".gif", ".bmp",
                                         ".tif", ".tiff", ".avif", ".jxl"};
    if (!request->output) return true;
    bool own;
    if (strcmp(request->output, "-") == 0)
        return say_fail(err, DK_ERROR_ARGUMENT,
                        "--output: - is not supported; name a file, the program prints its name");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcasecmp(ending(request->output), others[i]) == 0)
            return say_fail(err, DK_ERROR_ARGUMENT,
                            "--output: %.200s: darkroom writes PNG files; give the name .png in "
                            "place of %s",
                            request->output, others[i]);
    return expand(request->output, NULL, request, "", 0, &own, err);
}

char *output_name(const struct request *request, const char *model_name, int index,
                  struct dk_error *err)
{
    char *template = text_copy(request->output ? request->output : DEFAULT_NAME);
    bool own;
    if (request->output && is_folder(template)) {
        size_t n = strlen(template);
        char *inside =
            text_format("%s%s" DEFAULT_NAME, template, template[n - 1] == '/' ? "" : "/");
        free(template);
        template = inside;
    }
    if (!expand(template, NULL, request, model_name, index, &own, err)) {
        free(template);
        return NULL;
    }
    if (request->count > 1 && !own) {
        const char *dot = ending(template);
        int width = 1;
        for (int n = request->count; n >= 10; n /= 10) width++;
        char *numbered =
            text_format("%.*s-{index:%d}%s", (int)(dot - template), template, width, dot);
        free(template);
        template = numbered;
    }
    char *path = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&path, &n_bytes);
    if (!out) {
        free(template);
        say_fail(err, DK_ERROR_MEMORY, "--output: out of memory");
        return NULL;
    }
    expand(template, out, request, model_name, index, &own, err);
    fclose(out);
    free(template);
    if (*file_name(path)) return path;
    free(path);
    say_fail(err, DK_ERROR_ARGUMENT,
             "--output: the file's name comes out empty; add a word or {seed}");
    return NULL;
}

static char *folder_of(const char *path)
{
    size_t n = (size_t)(file_name(path) - path);
    return n == 0 ? text_copy(".") : text_copy_n(path, n > 1 ? n - 1 : 1); /* "/" stays */
}

/*
 * Permissions, a read-only file system and quotas are all found by making a file there and removing
 * it; asking access() would say yes to root.
 */
static bool probe_folder(const char *path, const char *folder, struct dk_error *err)
{
    char *probe = text_format("%s/.darkroom-XXXXXX", folder);
    interrupt_hold(true);
    int file = mkstemp(probe);
    int error = errno;
    if (file >= 0) {
        unlink(probe);
        close(file);
    }
    interrupt_hold(false);
    free(probe);
    return file >= 0 ||
           say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s: \"%s\"; choose another name",
                    path, strerror(error), folder);
}

bool output_probe(const char *path, struct dk_error *err)
{
    struct stat status;
    char *folder = folder_of(path);
    bool ok = stat(folder, &status) == 0;
    if (!ok && errno == ENOENT)
        say_fail(err, DK_ERROR_FILE,
                 "%s: cannot create: no such folder \"%s\"; create it or choose another name",
                 path, folder);
    else if (!ok || !S_ISDIR(status.st_mode))
        ok = say_fail(err, DK_ERROR_FILE, "%s: cannot create: \"%s\": %s", path, folder,
                      ok ? "not a folder" : strerror(errno));
    else if (strlen(file_name(path)) > 240)
        ok = say_fail(err, DK_ERROR_FILE,
                      "%.100s...: cannot create: a file name of %zu bytes, expected at most 240",
                      path, strlen(file_name(path)));
    else if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        ok = say_fail(err, DK_ERROR_FILE, "%s: is %s, expected the name of a file", path,
                      S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
    else
        ok = probe_folder(path, folder, err);
    free(folder);
    return ok;
}

char *output_folder(const char *output)
{
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/') n--;
    return text_copy_n(output, n);
}

char *output_write(const char *path, bool force, output_writer *write, void *user,
                   struct dk_error *err)
{
    const char *dot = ending(path);
    for (int number = 1; number < MAX_NUMBER; number++) {
        char *name = number == 1 ? text_copy(path)
                                 : text_format("%.*s-%d%s", (int)(dot - path), path, number, dot);
        struct stat status;
        struct dk_error why = {0};
        bool taken = !force && lstat(name, &status) == 0;
        if (!taken) {
            interrupt_hold(true);
            bool written = write(user, name, force, &why);
            interrupt_hold(false);
            if (written) return name;
            /* Somebody else may have taken the name since we looked; any other failure is final. */
            taken = !force && why.code == DK_ERROR_FILE && lstat(name, &status) == 0;
        }
        free(name);
        if (!taken) {
            say_fail(err, why.code, "%s", why.message);
            return NULL;
        }
    }
    say_fail(err, DK_ERROR_FILE,
             "%s: exists, and so do %d numbered names; clean up or choose another name", path,
             MAX_NUMBER - 2);
    return NULL;
}
