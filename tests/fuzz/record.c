/* record.c - fuzz target: what a PNG says about how it was made, ours or A1111's text. */
/* SPDX-License-Identifier: MIT */
#include "metadata.h"

#include "fuzz.h"

static void fuzz_record(const uint8_t *data, size_t size_bytes)
{
    char *text = malloc(size_bytes + 1);
    if (!text) abort();
    if (size_bytes) memcpy(text, data, size_bytes);
    text[size_bytes] = 0;
    struct record record = {0};
    json_error_t why;
    record.is_exact = text[0] == '{';
    record.settings =
        record.is_exact ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : json_object();
    record.other = json_object();
    if (!record.is_exact) metadata_parse_parameters(text, record.settings, record.other);
    if (json_is_object(record.settings)) {
        struct request request;
        struct dk_error err = {0};
        const char *plugin;
        request_init(&request);
        fuzz_said(record_apply(&record, "picture.png", &request, &plugin, &err), &err);
        request_free(&request);
    }
    record_free(&record);
    free(text);
}
