/* png.c - pictures as PNG files with their text chunks. */
/* SPDX-License-Identifier: MIT */
#include "files/png.h"
#include "files/create.h"
#include "files/image.h"
#include "files/map.h"
#include "files/utf8.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

/* Together at most 128 MB of decompressed text; libpng passes over the chunks beyond. */
#define MAX_TEXTS      32
#define MAX_TEXT_BYTES (4u << 20)

/*
 * libpng reports errors by longjmp. So that no local variable can be caught half changed, each
 * function that calls setjmp touches nothing but what this struct holds, and the caller frees that.
 */
struct coder {
    const char *path;
    struct dk_error *err;
    png_structp png;
    png_infop info;
    struct create file; /* writing */
    struct map map;     /* reading */
    size_t position;    /* in map */
    png_text *chunks;   /* writing: [n_texts], keyword and text owned */
    size_t n_chunks;
    struct dk_image image; /* reading */
    png_bytep *rows;
};

static void on_error(png_structp png, png_const_charp what)
{
    struct coder *c = png_get_error_ptr(png);
    if (c->map.data)
        dk_fail(c->err, DK_ERROR_FORMAT, "%s: damaged PNG: %s; copy or download it again", c->path,
                what);
    else
        dk_fail(c->err, DK_ERROR_FORMAT, "%s: cannot be written as PNG: %s", c->path, what);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp what)
{
    (void)png;
    (void)what;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_bytes(png_structp png, png_bytep data, size_t size_bytes)
{
    struct coder *c = png_get_io_ptr(png);
    if (!create_write(&c->file, data, size_bytes, c->err)) png_longjmp(png, 1);
}

static void put_nothing(png_structp png)
{
    (void)png;
}

/* PNG section 11.3.4.2: printable Latin-1, no space at either end and no two in a row. */
static bool keyword_ok(const char *latin1)
{
    size_t n = latin1 ? strlen(latin1) : 0;
    if (n < 1 || n > 79 || latin1[0] == ' ' || latin1[n - 1] == ' ' || strstr(latin1, "  "))
        return false;
    for (const unsigned char *s = (const unsigned char *)latin1; *s; s++)
        if (*s < 0x20 || (*s > 0x7e && *s < 0xa1)) return false;
    return true;
}

static bool make_chunk(struct coder *c, const struct dk_text *text, struct dk_error *err)
{
    png_text *chunk = &c->chunks[c->n_chunks++];
    bool fits;
    chunk->key = utf8_to_latin1(text->keyword, strlen(text->keyword), &fits);
    if (fits && !chunk->key)
        return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory for its text", c->path);
    if (!keyword_ok(chunk->key))
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "%s: \"%.100s\" is no keyword for a text chunk, expected 1 to 79 "
                       "printable Latin-1 characters",
                       c->path, text->keyword);
    size_t n = strlen(text->text);
    if (n > MAX_TEXT_BYTES)
        return dk_fail(err, DK_ERROR_ARGUMENT,
                       "%s: the text \"%s\" has %zu bytes, expected at most %u", c->path,
                       text->keyword, n, MAX_TEXT_BYTES);
    chunk->compression = PNG_TEXT_COMPRESSION_NONE;
    chunk->text = utf8_to_latin1(text->text, n, &fits);
    if (!fits) {
        chunk->compression = PNG_ITXT_COMPRESSION_NONE;
        chunk->text = utf8_repaired(text->text, n);
    }
    if (!chunk->text)
        return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory for its text", c->path);
    return true;
}

static bool make_chunks(struct coder *c, const struct dk_text *texts, size_t n_texts,
                        struct dk_error *err)
{
    if (n_texts > MAX_TEXTS)
        return dk_fail(err, DK_ERROR_ARGUMENT, "%s: %zu text chunks, expected at most %d", c->path,
                       n_texts, MAX_TEXTS);
    c->chunks = calloc(n_texts + 1, sizeof *c->chunks);
    if (!c->chunks) return dk_fail(err, DK_ERROR_MEMORY, "%s: out of memory for its text", c->path);
    for (size_t i = 0; i < n_texts; i++)
        if (!make_chunk(c, &texts[i], err)) return false;
    return true;
}

static void free_chunks(struct coder *c)
{
    for (size_t i = 0; i < c->n_chunks; i++) {
        free(c->chunks[i].key);
        free(c->chunks[i].text);
    }
    free(c->chunks);
}

/* What could make two runs differ is fixed: no time, and zlib's parameters spelled out. */
static bool encode(struct coder *c, const struct dk_image *image)
{
    if (setjmp(png_jmpbuf(c->png))) return false;
    png_set_write_fn(c->png, c, put_bytes, put_nothing);
    png_set_user_limits(c->png, IMAGE_MAX_SIDE_PX, IMAGE_MAX_SIDE_PX);
    png_set_compression_level(c->png, 6);
    png_set_compression_mem_level(c->png, 8);
    png_set_compression_strategy(c->png, 1); /* Z_FILTERED */
    png_set_compression_window_bits(c->png, 15);
    png_set_filter(c->png, PNG_FILTER_TYPE_BASE, PNG_ALL_FILTERS);
    png_set_IHDR(c->png, c->info, (png_uint_32)image->width_px, (png_uint_32)image->height_px, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_sRGB(c->png, c->info, PNG_sRGB_INTENT_PERCEPTUAL);
    if (c->n_chunks > 0) png_set_text(c->png, c->info, c->chunks, (int)c->n_chunks);
    png_write_info(c->png, c->info);
    for (int y = 0; y < image->height_px; y++)
        png_write_row(c->png, image->rgb + (size_t)y * (size_t)image->width_px * 3);
    png_write_end(c->png, NULL);
    return true;
}

static bool write_file(struct coder *c, const struct dk_image *image, bool overwrite)
{
    c->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, c, on_error, on_warning);
    c->info = c->png ? png_create_info_struct(c->png) : NULL;
    if (!c->info) return dk_fail(c->err, DK_ERROR_MEMORY, "%s: out of memory for libpng", c->path);
    if (!create_open(&c->file, c->path, overwrite, c->err)) return false;
    if (encode(c, image)) return create_commit(&c->file, c->err);
    create_abort(&c->file);
    return false;
}

bool dk_png_write(const char *path, const struct dk_image *image, const struct dk_text *texts,
                  size_t n_texts, bool overwrite, struct dk_error *err)
{
    struct dk_error own = {0}; /* the callbacks need one to find out what happened */
    struct coder c = {.path = path, .err = &own, .file.fd = -1};
    bool ok = image->rgb && image->width_px > 0 && image->height_px > 0 &&
              image->width_px <= IMAGE_MAX_SIDE_PX && image->height_px <= IMAGE_MAX_SIDE_PX;
    if (!ok)
        dk_fail(&own, DK_ERROR_ARGUMENT, "%s: a picture of %dx%d pixels, expected 1 to %d a side",
                path, image->width_px, image->height_px, IMAGE_MAX_SIDE_PX);
    ok = ok && make_chunks(&c, texts, n_texts, &own) && write_file(&c, image, overwrite);
    png_destroy_write_struct(&c.png, &c.info);
    free_chunks(&c);
    return ok || dk_fail(err, own.code, "%s", own.message);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool fail_cut(struct coder *c)
{
    return dk_fail(c->err, DK_ERROR_FORMAT,
                   "%s: the PNG ends in the middle, after %zu bytes; copy or download it again",
                   c->path, c->map.size_bytes);
}

/*
 * libpng allocates as much as a chunk says it is long (its own limit is only a warning), which may
 * be 2 GB of a file of 100 bytes. So every chunk must fit the file, and none but the picture's may
 * be large.
 */
static bool check_chunks(struct coder *c)
{
    const unsigned char *data = c->map.data;
    for (size_t at = 8;; at += 12) {
        if (c->map.size_bytes - at < 12) return fail_cut(c);
        const unsigned char *p = data + at;
        size_t n = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        if (n > c->map.size_bytes - at - 12) return fail_cut(c);
        if (memcmp(p + 4, "IEND", 4) == 0) return true;
        if (n > MAX_TEXT_BYTES && memcmp(p + 4, "IDAT", 4) != 0)
            return dk_fail(c->err, DK_ERROR_FORMAT,
                           "%s: a chunk beside the picture has %zu bytes, at most %u are allowed",
                           c->path, n, MAX_TEXT_BYTES);
        at += n;
    }
}

static void get_bytes(png_structp png, png_bytep data, size_t size_bytes)
{
    struct coder *c = png_get_io_ptr(png);
    if (size_bytes > c->map.size_bytes - c->position) {
        fail_cut(c);
        png_longjmp(png, 1);
    }
    memcpy(data, c->map.data + c->position, size_bytes);
    c->position += size_bytes;
}

/* The header, checked before anything of the picture's size is allocated; every kind of pixel
 * becomes 8-bit RGB. */
static bool decode_header(struct coder *c)
{
    if (setjmp(png_jmpbuf(c->png))) return false;
    png_set_read_fn(c->png, c, get_bytes);
    png_set_user_limits(c->png, IMAGE_MAX_SIDE_PX, IMAGE_MAX_SIDE_PX);
    png_set_chunk_cache_max(c->png, MAX_TEXTS);
    png_set_chunk_malloc_max(c->png, MAX_TEXT_BYTES + 256); /* libpng counts the keyword too */
    png_read_info(c->png, c->info);
    png_set_expand(c->png);   /* palette, 1, 2, 4 bits, transparent colour */
    png_set_scale_16(c->png); /* rounded, not cut */
    png_set_gray_to_rgb(c->png);
    png_set_strip_alpha(
        c->png); /* as the reference implementations read pictures: hidden colours stay */
    (void)png_set_interlace_handling(c->png);
    png_read_update_info(c->png, c->info);
    return true;
}

static bool allocate_picture(struct coder *c)
{
    png_uint_32 width = png_get_image_width(c->png, c->info),
                height = png_get_image_height(c->png, c->info);
    if (png_get_rowbytes(c->png, c->info) != (size_t)width * 3)
        return dk_fail(c->err, DK_ERROR_UNSUPPORTED, "%s: a kind of PNG that is not read here",
                       c->path);
    struct dk_error why = {0};
    if (!image_new(&c->image, (int)width, (int)height, &why))
        return dk_fail(c->err, why.code == DK_ERROR_ARGUMENT ? DK_ERROR_FORMAT : why.code, "%s: %s",
                       c->path, why.message); /* the file is at fault, not a setting */
    c->rows = malloc(height * sizeof *c->rows);
    if (!c->rows) return dk_fail(c->err, DK_ERROR_MEMORY, "%s: out of memory", c->path);
    for (size_t y = 0; y < height; y++) c->rows[y] = c->image.rgb + y * width * 3;
    return true;
}

/* Text chunks may stand before or after the picture, so all of the file is read. */
static bool decode_rest(struct coder *c)
{
    if (setjmp(png_jmpbuf(c->png))) return false;
    png_read_image(c->png, c->rows);
    png_read_end(c->png, c->info);
    return true;
}

static bool copy_texts(struct coder *c, struct dk_texts *texts)
{
    png_text *chunks;
    int n = 0;
    png_get_text(c->png, c->info, &chunks, &n);
    texts->items = calloc((size_t)n + 1, sizeof *texts->items);
    if (!texts->items)
        return dk_fail(c->err, DK_ERROR_MEMORY, "%s: out of memory for its text", c->path);
    for (int i = 0; i < n; i++) {
        const png_text *chunk = &chunks[i];
        if (chunk->key[0] == 0) continue; /* libpng lets such chunks pass, the format does not */
        bool is_utf8 = chunk->compression == PNG_ITXT_COMPRESSION_NONE ||
                       chunk->compression == PNG_ITXT_COMPRESSION_zTXt;
        const char *text = chunk->text ? chunk->text : "";
        struct dk_text *item = &texts->items[texts->n_items++];
        item->keyword = utf8_from_latin1(chunk->key, strlen(chunk->key));
        item->text =
            is_utf8 ? utf8_repaired(text, strlen(text)) : utf8_from_latin1(text, strlen(text));
        if (!item->keyword || !item->text)
            return dk_fail(c->err, DK_ERROR_MEMORY, "%s: out of memory for its text", c->path);
    }
    return true;
}

static bool read_map(struct coder *c, struct dk_texts *texts)
{
    if (c->map.size_bytes < 8 || png_sig_cmp(c->map.data, 0, 8) != 0)
        return dk_fail(c->err, DK_ERROR_FORMAT, "%s: is not a PNG file", c->path);
    if (!check_chunks(c)) return false;
    c->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, c, on_error, on_warning);
    c->info = c->png ? png_create_info_struct(c->png) : NULL;
    if (!c->info) return dk_fail(c->err, DK_ERROR_MEMORY, "%s: out of memory for libpng", c->path);
    return decode_header(c) && allocate_picture(c) && decode_rest(c) && copy_texts(c, texts);
}

void dk_texts_free(struct dk_texts *texts)
{
    if (!texts) return;
    for (size_t i = 0; i < texts->n_items; i++) {
        free(texts->items[i].keyword);
        free(texts->items[i].text);
    }
    free(texts->items);
    *texts = (struct dk_texts){0};
}

bool png_read_map(const char *path, const struct map *map, struct dk_image *image,
                  struct dk_texts *texts, struct dk_error *err)
{
    struct dk_error own = {0};
    struct coder c = {.path = path, .map = *map, .err = &own, .file.fd = -1};
    struct dk_texts found = {0};
    bool ok = read_map(&c, &found);
    png_destroy_read_struct(&c.png, &c.info, NULL);
    free(c.rows);
    if (ok && image)
        *image = c.image;
    else
        dk_image_free(&c.image);
    if (ok && texts)
        *texts = found;
    else
        dk_texts_free(&found);
    if (ok) return true;
    if (image) *image = (struct dk_image){0};
    if (texts) *texts = (struct dk_texts){0};
    return dk_fail(err, own.code, "%s", own.message);
}

bool dk_png_read(const char *path, struct dk_image *image, struct dk_texts *texts,
                 struct dk_error *err)
{
    struct map map;
    if (image) *image = (struct dk_image){0};
    if (texts) *texts = (struct dk_texts){0};
    if (!map_open(&map, path, err)) return false;
    bool ok = png_read_map(path, &map, image, texts, err);
    map_close(&map);
    return ok;
}
