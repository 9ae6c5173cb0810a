/* checkdynamic.c - templates: choices, wildcards, enumeration. */
/* SPDX-License-Identifier: MIT */
#include "check.h"
#include "darkroom.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void file_write(const char *folder, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fputs(text, file);
    fclose(file);
}

/* All prompts of text joined with "; ". */
static void check_all(const char *folder, const char *text, const char *wanted)
{
    char **prompts, found[4096] = "";
    size_t n = 0;
    bool complete = false;
    struct dk_error err = {0};
    if (!dk_expand_all(text, folder, 1000, &prompts, &n, &complete, &err)) {
        CHECK(false, "\"%s\": %s", text, err.message);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", i ? "; " : "",
                 prompts[i]);
    }
    CHECK(strcmp(found, wanted) == 0 && complete, "\"%s\": \"%s\", wanted \"%s\"", text, found,
          wanted);
    /* Whatever the seed, the choice is one of them. */
    for (uint64_t seed = 0; seed < 40; seed++) {
        char *prompt;
        bool ok = dk_expand_prompt(text, folder, seed, &prompt, &err), is_one = false;
        for (size_t i = 0; ok && i < n; i++) is_one = is_one || strcmp(prompts[i], prompt) == 0;
        CHECK(is_one, "\"%s\", seed %d: \"%s\" is none of them", text, (int)seed,
              ok ? prompt : err.message);
        if (ok) dk_free(prompt);
    }
    dk_prompts_free(prompts, n);
}

static void check_language(const char *folder)
{
    check_all(NULL, "", "");
    check_all(NULL, "a cat", "a cat");
    check_all(NULL, "{a|b|c}", "a; b; c");
    check_all(NULL, "a {red|blue} {cat|dog}", "a red cat; a red dog; a blue cat; a blue dog");
    check_all(NULL, "{a}", "a");
    check_all(NULL, "x{}y", "xy");
    check_all(NULL, "{|a}", "; a");
    check_all(NULL, "{3::|a|b}", "; a; b");                  /* an empty option with a weight */
    check_all(NULL, "{ 2 :: a|0.5::b|0::c}", " a; b");       /* weight 0: never */
    check_all(NULL, "{1girl|2:1|a::b}", "1girl; 2:1; a::b"); /* numbers that are no weights */
    check_all(NULL, "{a {b|c}|{d|{e|f}} g}", "a b; a c; d g; e g; f g");
    check_all(NULL, "{red |blue }cat{, big|}",
              "red cat, big; red cat; blue cat, big; blue cat"); /* spaces stay */
    check_all(NULL, "{2$$a|b|c}", "a, b; a, c; b, a; b, c; c, a; c, b");
    check_all(NULL, "{2$$ and $$a|b}", "a and b; b and a");
    check_all(NULL, "{1-2$$ a | b }", "a; b; a, b; b, a"); /* joined options are trimmed */
    check_all(NULL, "{0-1$$a|b}", "; a; b");
    check_all(NULL, "{-1$$a|b}", "; a; b");
    check_all(NULL, "{2-$$+$$a|b}", "a+b; b+a");
    check_all(NULL, "{2-9$$+$$a|b}", "a+b; b+a");            /* no more than there are */
    check_all(NULL, "{2$$+$$a||b}", "a; a+b; a; b; b+a; b"); /* nothing is joined to nothing */
    check_all(NULL, "{2$$$$a|b}", "ab; ba");
    check_all(NULL, "{2$$x $$ {a|b}|c}", "ax c; bx c; cx a; cx b");
    check_all(NULL, "{0$$a|b}", "");
    check_all(NULL, "{$$a|-$$b}", "$$a; -$$b"); /* no count without a number */
    check_all(NULL, "a } b | c, $5, a_b, _ __ ____ _____", "a } b | c, $5, a_b, _ __ ____ _____");
    check_all(NULL, "\\{a\\|b\\} \\_\\_x__ (\\(:1.2) \\\\ \\", "{a|b} __x__ (\\(:1.2) \\\\ \\");
    check_all(NULL, "{a\\|b|c\\}}", "a|b; c}");
    check_all(folder, "{a,__animals__|b}",
              "a,cat; a,dog; a,snow leopard; b"); /* a wildcard after a comma */
    check_all(folder, "__animals__s", "cats; dogs; snow leopards");
    check_all(folder, "__sub/colours__ __sub/colours__", "red red; red blue; blue red; blue blue");
    check_all(folder, "{2$$__sub/colours__}",
              "red, blue; blue, red"); /* several lines of a wildcard */
    check_all(folder, "{1-2$$ & $$ __sub/colours__ }", "red; blue; red & blue; blue & red");
    check_all(
        folder, "__nested__",
        "a red cat; a red dog; a red snow leopard; a blue cat; a blue dog; a blue snow leopard; b");
    check_all(folder, "__windows__", "\xC3\xA9t\xC3\xA9; hiver");
}

static void check_refused(const char *folder, const char *text, const char *wanted)
{
    char *prompt = NULL, **prompts = NULL;
    size_t n = 0;
    struct dk_error err = {0}, all_err = {0};
    bool ok = dk_expand_prompt(text, folder, 1, &prompt, &err);
    CHECK(!ok && !prompt && strstr(err.message, wanted), "\"%.60s\": \"%s\", wanted \"%s\"", text,
          ok ? prompt : err.message, wanted);
    ok = dk_expand_all(text, folder, 1000, &prompts, &n, NULL, &all_err);
    CHECK(!ok && !prompts && all_err.code != DK_OK, "\"%.60s\": %zu prompts", text, n);
}

static void check_errors(const char *folder)
{
    check_refused(NULL, "a {b|c", "never closed");
    check_refused(NULL, "{{a}", "never closed");
    check_refused(NULL, "{a\\}", "never closed");
    check_refused(NULL, "{3$$a|b}", "asks for 3 options, 2");
    check_refused(NULL, "{2-1$$a|b}", "asks for 2 to 1");
    check_refused(NULL, "{0::a|0::b}", "0 have a weight above 0");
    check_refused(NULL, "{1.2.3::a|b}", "no number before the \"::\"");
    check_refused(NULL, "${x=a} ${x}", "variables");
    check_refused(NULL, "__animals__", "needs a folder");
    check_refused(folder, "__nothing__", "no wildcard file for __nothing__");
    check_refused("tests/nowhere", "__animals__", "tests/nowhere/animals.txt");
    check_refused(folder, "__../secret__", "not a file name");
    check_refused(folder, "__sub/../animals__", "not a file name");
    check_refused(folder, "__/etc/passwd__", "not a file name");
    check_refused(folder, "__sub//colours__", "not a file name");
    check_refused(folder, "__sub/__", "not a file name");
    check_refused(folder, "__.hidden__", "not a file name");
    check_refused(folder, "__an*__", "not a file name");
    check_refused(folder, "__link__", "outside the folder");
    check_refused(folder, "__beside__", "outside the folder");
    check_refused(folder, "__empty__", "no line to choose");
    check_refused(folder, "__sub__", "no wildcard file");
    check_refused(folder, "__folder__", "a folder");
    check_refused(folder, "__loop__", "deep in each other");
    check_refused(folder, "__ping__", "deep in each other");
    check_refused(folder, "__bomb1__", "");
    char deep[1024] = "";
    for (int i = 0; i < 100; i++) strcat(deep, "{x");
    for (int i = 0; i < 100; i++) strcat(deep, "}");
    check_refused(NULL, deep, "deep in each other");
    char *name = malloc(5000);
    memset(name, 'n', 4999);
    memcpy(name, "__", 2);
    memcpy(name + 4996, "__", 3);
    char *prompt = NULL;
    CHECK(dk_expand_prompt(name, folder, 0, &prompt, NULL) && strcmp(prompt, name) == 0,
          "an endless name is plain text");
    dk_free(prompt);
    free(name);
    size_t n = 3 << 20; /* more than a prompt may have */
    char *text = malloc(n + 1);
    memset(text, 'x', n);
    text[n] = '\0';
    check_refused(NULL, text, "more than 1048576 bytes");
    free(text);
}

/* These may never change: pictures name their seed and template only. */
static void check_seeds(const char *folder)
{
    static const struct {
        uint64_t seed;
        const char *prompt;
    } cases[] = {
        {0, "d x 1, 4 cat p"},
        {1, "c x 4, 2 dog r and q and p"},
        {2, "c x 3, 4 cat r and q"},
        {42, "c x 2, 3 cat p and r and q"},
        {UINT64_MAX, "d y 1, 3 snow leopard r and p and q"},
    };
    const char *text = "{a|b|c|d} {3::x|y} {2$$1|2|3|4} __animals__ {1-3$$ and $$p|q|r}";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *prompt = NULL;
        bool ok = dk_expand_prompt(text, folder, cases[i].seed, &prompt, NULL);
        CHECK(ok && strcmp(prompt, cases[i].prompt) == 0, "seed %llu: \"%s\"",
              (unsigned long long)cases[i].seed, prompt);
        dk_free(prompt);
    }
    /*
     * The weights hold: 4000 draws, 3 to 1, within 5 standard deviations (27.4); neighbouring seeds
     * are unrelated.
     */
    int n_x = 0, n_same = 0;
    char *last = NULL;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        char *prompt = NULL;
        if (!dk_expand_prompt("{3::x|y}", NULL, seed, &prompt, NULL)) break;
        n_x += *prompt == 'x';
        n_same += last && strcmp(last, prompt) == 0;
        dk_free(last);
        last = prompt;
    }
    dk_free(last);
    CHECK(n_x > 3000 - 137 && n_x < 3000 + 137, "%d of 4000 draws", n_x);
    CHECK(n_same > 2500 - 155 && n_same < 2500 + 155, "%d of 4000 as the one before",
          n_same); /* 9/16 + 1/16 */
}

static void check_limit(void)
{
    char **prompts = NULL;
    size_t n = 0;
    bool complete = true;
    bool ok =
        dk_expand_all("{a|b|c}{a|b|c}{a|b|c}{a|b|c}{a|b|c}{a|b|c}{a|b|c}{a|b|c}{a|b|c}{a|b|c}",
                      NULL, 10, &prompts, &n, &complete, NULL);
    CHECK(ok && n == 10 && !complete && strcmp(prompts[9], "aaaaaaabaa") == 0,
          "%zu prompts, complete %d", n, complete);
    dk_prompts_free(prompts, n);
    ok = dk_expand_all("{a|b|c}{a|b}", NULL, 6, &prompts, &n, &complete, NULL);
    CHECK(ok && n == 6 && complete, "%zu prompts, complete %d", n, complete);
    dk_prompts_free(prompts, n);
    ok = dk_expand_all("{a|b}", NULL, 0, &prompts, &n, &complete, NULL);
    CHECK(ok && n == 0 && !complete, "%zu prompts, complete %d", n, complete);
    dk_prompts_free(prompts, n);
}

static void check_random_templates(const char *folder)
{
    static const char *const atoms[] = {"{",           "}",          "|",
                                        "$$",          "2",          "1-",
                                        "::",          "0.5",        "\\",
                                        "__",          "animals",    "/",
                                        "..",          " ",          ",",
                                        "a",           "_",          "${",
                                        "sub/colours", "nested",     "\xFF",
                                        "\n",          "__loop__",   "{2$$",
                                        "{a|b}",       "{2$$a|b|c}", "{__animals__|x}"};
    uint32_t state = 11;
    size_t n_made = 0;
    for (int round = 0; round < 3000; round++) {
        char text[512] = "", *prompt = NULL;
        for (int i = 0; i < 10; i++) {
            state = state * 1664525u + 1013904223u;
            strcat(text, atoms[(state >> 16) % (sizeof atoms / sizeof *atoms)]);
        }
        struct dk_error err = {0};
        bool ok = dk_expand_prompt(text, folder, (uint64_t)round, &prompt, &err);
        CHECK(ok ? prompt && err.code == DK_OK : !prompt && err.message[0], "\"%s\": %s", text,
              err.message);
        n_made += ok;
        dk_free(prompt);
    }
    CHECK(n_made > 100 && n_made < 2900, "%zu of 3000 random templates expand", n_made);
}

int main(void)
{
    const char *build = getenv("BUILD");
    char folder[512], path[600], target[1024];
    snprintf(folder, sizeof folder, "%s/tests/wildcards", build ? build : "build");
    mkdir(folder, 0777);
    for (int i = 0; i < 3; i++) {
        static const char *const folders[] = {"sub", "folder.txt", "."};
        snprintf(path, sizeof path, "%s/%s", folder, folders[i]);
        mkdir(path, 0777);
    }
    file_write(folder, "animals.txt", "# beasts\ncat\n\n  dog  \nsnow leopard");
    file_write(folder, "sub/colours.txt", "red\nblue\n");
    file_write(folder, "nested.txt", "{a|0::z} __sub/colours__ __animals__\nb\n");
    file_write(folder, "windows.txt", "\xEF\xBB\xBF\xC3\xA9t\xC3\xA9\r\nhiver\r\n");
    file_write(folder, "empty.txt", "\n# nothing\n");
    file_write(folder, "loop.txt", "__loop__\n");
    file_write(folder, "ping.txt", "__pong__ {__pong__|__pong__}\n");
    file_write(folder, "pong.txt", "{2$$__ping__|__ping__}\n");
    file_write(folder, ".hidden.txt", "x\n");
    for (int i = 1; i < 40; i++) { /* 2 to the power of 40 of nothing */
        char name[64], text[64];
        snprintf(name, sizeof name, "bomb%d.txt", i);
        snprintf(text, sizeof text, i == 39 ? "{|}\n" : "__bomb%d____bomb%d__\n", i + 1, i + 1);
        file_write(folder, name, text);
    }
    snprintf(path, sizeof path, "%s-beside.txt", folder); /* its path begins as the folder's does */
    FILE *beside = fopen(path, "wb");
    if (beside) fclose(beside);
    snprintf(path, sizeof path, "%s/beside.txt", folder);
    unlink(path);
    if (symlink("../wildcards-beside.txt", path) != 0) perror(path);
    snprintf(path, sizeof path, "%s/link.txt", folder);
    if (getcwd(target, sizeof target - 16)) strcat(target, "/LICENSE");
    unlink(path);
    if (symlink(target, path) != 0) perror(path);

    check_language(folder);
    check_errors(folder);
    check_seeds(folder);
    check_limit();
    check_random_templates(folder);
    return check_end("checkdynamic");
}
