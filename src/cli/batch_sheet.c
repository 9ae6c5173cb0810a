/* batch_sheet.c - the contact sheet: all pictures of a folder on one page. */
/* SPDX-License-Identifier: MIT */
#include "batch_sheet.h"

#include "canvas.h"
#include "commands.h"
#include "metadata.h"
#include "say.h"
#include "sha256.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* One picture of the sheet. */
struct entry {
    char *file; /* in the folder */
    long long index;
    const struct manifest_entry *recorded; /* or NULL: a picture that no batch made */
    json_t *settings; /* by option name; of a recorded one only while it is shown */
};
struct entries {
    struct entry *items;
    size_t n_items, capacity;
};

static void entries_add(struct entries *entries, const char *file, long long index,
                        const struct manifest_entry *recorded, json_t *settings)
{
    if (entries->n_items == entries->capacity) {
        entries->capacity = entries->capacity ? 2 * entries->capacity : 64;
        struct entry *larger = text_alloc(entries->capacity * sizeof *larger);
        if (entries->n_items > 0) memcpy(larger, entries->items, entries->n_items * sizeof *larger);
        free(entries->items);
        entries->items = larger;
    }
    entries->items[entries->n_items++] =
        (struct entry){text_copy(file), index, recorded, json_incref(settings)};
}

static void entries_free(struct entries *entries)
{
    for (size_t i = 0; i < entries->n_items; i++) {
        free(entries->items[i].file);
        json_decref(entries->items[i].settings);
    }
    free(entries->items);
}

static int compare(const void *a, const void *b)
{
    const struct entry *first = a, *second = b;
    if (first->index != second->index) return first->index < second->index ? -1 : 1;
    return strcmp(first->file, second->file);
}

static bool is_file(const char *folder, const char *name)
{
    struct stat status;
    char *path = text_format("%s/%s", folder, name);
    bool ok = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    free(path);
    return ok;
}

static void from_manifest(struct entries *entries, const char *folder,
                          const struct manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_entries; i++) {
        const struct manifest_entry *entry = &manifest->entries[i];
        if (!entry->is_done || manifest_find(manifest, entry->job) != entry ||
            !is_file(folder, entry->file))
            continue;
        entries_add(entries, entry->file, entry->index, entry, NULL);
    }
}

/* Pictures that no batch made: by name, with what they say about themselves. */
static void from_folder(struct entries *entries, const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *item; dir && (item = readdir(dir));) {
        size_t n = strlen(item->d_name);
        if (item->d_name[0] == '.' || n < 5 || strcasecmp(item->d_name + n - 4, ".png") != 0)
            continue;
        if (strncmp(item->d_name, "contact.", 8) == 0 || strncmp(item->d_name, "contact-", 8) == 0)
            continue;
        struct record record;
        struct dk_error ignored = {0};
        char *path = text_format("%s/%s", folder, item->d_name);
        bool ok = record_read(path, &record, &ignored);
        if (ok) {
            entries_add(entries, item->d_name, 0, NULL, record.settings);
            record_free(&record);
        }
        free(path);
    }
    if (dir) closedir(dir);
}

/* Reads what the manifest says about the picture, or lets go of it: a thousand of them would be
 * many megabytes. */
static void load(struct entry *entry, const struct manifest *manifest)
{
    if (!entry->recorded) return;
    json_t *line = manifest_line(manifest, entry->recorded);
    entry->settings = json_incref(json_object_get(line, "settings"));
    json_decref(line);
}

static void unload(struct entry *entry)
{
    if (!entry->recorded) return;
    json_decref(entry->settings);
    entry->settings = NULL;
}

/* ---- captions ------------------------------------------------------------------------------ */

static const char *text_of(const struct entry *entry, const char *key)
{
    return json_string_value(json_object_get(entry->settings, key));
}

static char *show(const json_t *value)
{
    if (!value) return text_copy("?");
    return json_is_string(value) ? text_copy(json_string_value(value)) : metadata_line(value);
}

/* "seed 7, 64x64, 4 steps of ddim, guidance 4, ..." - what is at its zero is not told. Free it. */
static char *describe(const struct entry *entry)
{
    static const char *const apart[] = {
        "prompt",   "negative", "template",          "seed", "size",  "steps", "scheduler",
        "guidance", "darkroom", "model-fingerprint", "cpu",  "model", "rng",   "eta"};
    char *text = NULL;
    size_t n_bytes;
    const char *key;
    json_t *value;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) return text_copy("");
    for (size_t i = 0; i < 5; i++) {
        static const struct {
            const char *before, *key, *after;
        } first[] = {{"seed ", "seed", ""},
                     {", ", "size", ""},
                     {", ", "steps", " steps"},
                     {" of ", "scheduler", ""},
                     {", guidance ", "guidance", ""}};
        char *shown = show(json_object_get(entry->settings, first[i].key));
        fprintf(out, "%s%s%s", first[i].before, shown, first[i].after);
        free(shown);
    }
    json_object_foreach(entry->settings, key, value)
    {
        bool skip = json_is_null(value) || json_is_false(value) || json_integer_value(value) == 0;
        if (json_is_string(value) || json_is_real(value) || json_is_true(value)) skip = false;
        for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
            skip = skip || strcmp(apart[i], key) == 0;
        if (skip) continue;
        char *shown = show(value);
        fprintf(out, ", %s %s", strcmp(key, "model-name") == 0 ? "model" : key, shown);
        free(shown);
    }
    return fclose(out) == 0 ? text : text_copy("");
}

/* ---- index.html ---------------------------------------------------------------------------- */

static void put_url(FILE *out, const char *file)
{
    for (; *file; file++) {
        unsigned char c = (unsigned char)*file;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~/", c);
        fprintf(out, plain ? "%c" : "%%%02X", c);
    }
}

static const char style[] =
    ":root{color-scheme:light dark;--line:#8884}\n"
    "body{font:14px/1.4 system-ui,sans-serif;margin:1.5rem;max-width:120rem}\n"
    "header{display:flex;gap:1rem;align-items:baseline;flex-wrap:wrap;margin-bottom:1rem}\n"
    "h1{font-size:1.2rem;margin:0}\n"
    "input{font:inherit;padding:.3rem .6rem;min-width:16rem}\n"
    "main{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:1rem}\n"
    "figure{margin:0;border:1px solid var(--line);border-radius:6px;overflow:hidden}\n"
    "figure "
    "a{display:flex;height:13rem;align-items:center;justify-content:center;background:#8882}\n"
    "img{width:100%;height:100%;object-fit:contain}\n"
    "img.small{image-rendering:pixelated}\n"
    "figcaption{padding:.5rem .7rem;overflow-wrap:anywhere}\n"
    "figcaption p{margin:0 0 .3rem;white-space:pre-line}\n"
    ".settings,.negative,.template{opacity:.75;font-size:.85em}\n";

/* Filters as one types; without scripts the page is whole. */
static const char script[] =
    "const box=document.querySelector('input'),all=[...document.querySelectorAll('figure')];\n"
    "box.hidden=false;\n"
    "box.addEventListener('input',()=>{const words=box.value.toLowerCase().split(/\\s+/);\n"
    "for(const f of all){const "
    "t=f.textContent.toLowerCase();f.hidden=!words.every(w=>t.includes(w));}});\n";

static void put_paragraph(FILE *out, const char *class, const char *label, const char *text)
{
    if (!text || !*text) return;
    fprintf(out, "<p class=\"%s\">%s", class, label);
    canvas_escape(out, text);
    fputs("</p>", out);
}

static void put_figure(FILE *out, const struct entry *entry)
{
    const char *prompt = text_of(entry, "prompt"), *size = text_of(entry, "size");
    int width = 0, height = 0;
    bool sized = size && sscanf(size, "%dx%d", &width, &height) == 2 && width > 0 && height > 0;
    char *settings = describe(entry);
    fputs("<figure><a href=\"", out);
    put_url(out, entry->file);
    fputs("\"><img loading=\"lazy\" src=\"", out);
    put_url(out, entry->file);
    fputs("\" alt=\"", out);
    canvas_escape(out, prompt ? prompt : entry->file);
    fputc('"', out);
    if (sized)
        fprintf(out, " width=\"%d\" height=\"%d\"%s", width, height,
                width < 160 ? " class=\"small\"" : "");
    fputs("></a><figcaption>", out);
    put_paragraph(out, "prompt", "", prompt && *prompt ? prompt : entry->file);
    put_paragraph(out, "negative", "not: ", text_of(entry, "negative"));
    put_paragraph(out, "template", "from: ", text_of(entry, "template"));
    put_paragraph(out, "settings", "", settings);
    fputs("</figcaption></figure>\n", out);
    free(settings);
}

static bool close_file(FILE *out, const char *temporary, const char *path, struct dk_error *err)
{
    bool ok = fflush(out) == 0 && !ferror(out) && fsync(fileno(out)) == 0;
    int why = errno;
    if (fclose(out) != 0) ok = false;
    if (ok && rename(temporary, path) == 0) return true;
    if (ok) why = errno;
    unlink(temporary);
    return say_fail(err, DK_ERROR_FILE, "%s: cannot write: %s", path, strerror(why));
}

/* Which pictures are on the sheet, in a comment at the end of the page: it is written last. */
#define KEY_START "<!-- "

static void make_key(const struct entries *entries, char hex[65])
{
    struct sha256 sha;
    sha256_start(&sha);
    sha256_add(&sha, DK_VERSION, sizeof DK_VERSION);
    for (size_t i = 0; i < entries->n_items; i++) {
        const struct entry *entry = &entries->items[i];
        char *text = text_format("%s %s %lld", entry->file,
                                 entry->recorded ? entry->recorded->sha256 : "", entry->index);
        sha256_add(&sha, text, strlen(text) + 1);
        free(text);
    }
    sha256_finish(&sha, hex);
}

static bool has_key(const char *folder, const char *key)
{
    char *path = text_format("%s/index.html", folder), end[256] = "",
         *wanted = text_format(KEY_START "%s", key);
    FILE *file = fopen(path, "re");
    bool found = file && fseek(file, -(long)(sizeof end - 1), SEEK_END) == 0 &&
                 fread(end, 1, sizeof end - 1, file) > 0 && strstr(end, wanted);
    if (file) fclose(file);
    free(path);
    free(wanted);
    return found;
}

static bool write_html(const char *folder, struct entries *entries, const struct manifest *manifest,
                       const char *key, struct dk_error *err)
{
    char *path = text_format("%s/index.html", folder),
         *temporary = text_format("%s/.index-%ld.tmp", folder, (long)getpid());
    FILE *out = fopen(temporary, "wxe");
    bool ok = out || say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s", path, strerror(errno));
    if (ok) {
        fprintf(out,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Contact "
                "sheet</title>\n"
                "<style>\n%s</style></head><body>\n"
                "<header><h1>Contact sheet</h1><span>%zu picture%s</span>"
                "<input type=\"search\" hidden placeholder=\"filter by prompt or setting\" "
                "aria-label=\"filter\">"
                "</header>\n<main>\n",
                style, entries->n_items, entries->n_items == 1 ? "" : "s");
        for (size_t i = 0; i < entries->n_items; i++) {
            load(&entries->items[i], manifest);
            put_figure(out, &entries->items[i]);
            unload(&entries->items[i]);
        }
        fprintf(out, "</main>\n<script>\n%s</script></body></html>\n" KEY_START "%s -->\n", script,
                key);
        ok = close_file(out, temporary, path, err);
    }
    free(path);
    free(temporary);
    return ok;
}

/* ---- contact.png --------------------------------------------------------------------------- */

#define BOX_PX       160 /* a picture's room */
#define TEXT_PX      58  /* four lines of caption */
#define GAP_PX       12
#define MAX_COLUMNS  8
#define MAX_PER_PAGE 64 /* a page is drawn in memory, 18 MB with the copy that is written */

static void draw_entry(cairo_t *cr, const char *folder, const struct entry *entry, double x,
                       double y)
{
    struct dk_image image = {0};
    struct dk_error ignored = {0};
    const char *prompt = text_of(entry, "prompt");
    char *path = text_format("%s/%s", folder, entry->file), *settings = describe(entry);
    cairo_set_source_rgb(cr, 0.94, 0.94, 0.94);
    cairo_rectangle(cr, x, y, BOX_PX, BOX_PX);
    cairo_fill(cr);
    if (dk_png_read(path, &image, NULL, &ignored)) canvas_picture(cr, &image, x, y, BOX_PX, BOX_PX);
    dk_image_free(&image);
    int height = canvas_words(cr, prompt && *prompt ? prompt : entry->file, "Sans 8", 2, BOX_PX, 0,
                              x, y + BOX_PX + 3);
    canvas_words(cr, settings, "Sans 7", 2, BOX_PX, 0.4, x, y + BOX_PX + 4 + height);
    free(path);
    free(settings);
}

static bool write_page(const char *folder, struct entry *items, size_t n, size_t page,
                       const struct manifest *manifest, struct dk_error *err)
{
    int columns = (int)ceil(sqrt((double)n));
    if (columns > MAX_COLUMNS || page > 1) columns = MAX_COLUMNS;
    int rows = (int)((n + (size_t)columns - 1) / (size_t)columns);
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, GAP_PX + columns * (BOX_PX + GAP_PX),
                                   GAP_PX + rows * (BOX_PX + TEXT_PX + GAP_PX));
    cairo_t *cr = cairo_create(surface);
    bool ok =
        cairo_status(cr) == CAIRO_STATUS_SUCCESS ||
        say_fail(err, DK_ERROR_MEMORY, "contact.png: out of memory for a sheet of %zu pictures", n);
    if (ok) {
        cairo_set_source_rgb(cr, 1, 1, 1);
        cairo_paint(cr);
        for (size_t i = 0; i < n; i++) {
            load(&items[i], manifest);
            draw_entry(cr, folder, &items[i],
                       GAP_PX + (double)(i % (size_t)columns) * (BOX_PX + GAP_PX),
                       GAP_PX + (double)(i / (size_t)columns) * (BOX_PX + TEXT_PX + GAP_PX));
            unload(&items[i]);
        }
        char *path = page == 1 ? text_format("%s/contact.png", folder)
                               : text_format("%s/contact-%zu.png", folder, page);
        struct dk_image image = canvas_image(surface);
        ok = dk_png_write(path, &image, NULL, 0, true, err);
        dk_image_free(&image);
        free(path);
    }
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
    return ok;
}

/* ---- both ---------------------------------------------------------------------------------- */

static bool write_sheet(const char *folder, struct entries *entries,
                        const struct manifest *manifest, struct dk_error *err)
{
    if (entries->n_items == 0)
        return say_fail(err, DK_ERROR_FILE, "%s: holds no pictures to put on a sheet", folder);
    qsort(entries->items, entries->n_items, sizeof *entries->items, compare);
    bool ok = true;
    char key[65];
    make_key(entries, key);
    if (entries->items[0].recorded && has_key(folder, key)) return true;
    for (size_t first = 0, page = 1; ok && first < entries->n_items;
         first += MAX_PER_PAGE, page++) {
        size_t left = entries->n_items - first;
        ok = write_page(folder, entries->items + first, left < MAX_PER_PAGE ? left : MAX_PER_PAGE,
                        page, manifest, err);
    }
    return ok && write_html(folder, entries, manifest, key, err);
}

bool sheet_write(const char *folder, const struct manifest *manifest, struct dk_error *err)
{
    struct entries entries = {NULL, 0, 0};
    from_manifest(&entries, folder, manifest);
    bool ok = entries.n_items == 0 || write_sheet(folder, &entries, manifest, err);
    entries_free(&entries);
    return ok;
}

int sheet_run(struct request *request, struct arguments *arguments, int argc, char **argv)
{
    struct dk_error err = {0};
    struct entries entries = {NULL, 0, 0};
    struct manifest manifest = {0};
    struct stat status;
    (void)argc;
    (void)argv;
    const char *folder = arguments->n_words == 1 ? arguments->words[0] : NULL;
    bool ok = folder || say_fail(&err, DK_ERROR_ARGUMENT,
                                 "sheet: found %zu words, expected one folder", arguments->n_words);
    if (ok && (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode)))
        ok = say_fail(&err, DK_ERROR_FILE, "%s: there is no such folder", folder);
    ok = ok && manifest_open(&manifest, folder, &err);
    if (ok) from_manifest(&entries, folder, &manifest);
    if (ok && manifest.n_entries == 0) from_folder(&entries, folder);
    ok = ok && write_sheet(folder, &entries, &manifest, &err);
    if (ok && request->json)
        printf("{\"pictures\":%zu}\n", entries.n_items);
    else if (ok && !request->quiet) {
        text_print(stdout, folder);
        puts("/index.html");
    }
    entries_free(&entries);
    if (manifest.path) manifest_close(&manifest);
    return ok ? EXIT_DONE : say_failure(&err);
}
