/* batch_claims.c - who works on what: files that only one process can create. */
/* SPDX-License-Identifier: MIT */
#include "batch_claims.h"

#include "progress.h"
#include "say.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_GENERATIONS 10000
#define CLAIM_BYTES     512

struct held {
    struct held *next;
    char *name;
    int generation;
};

/* A claim of somebody we cannot look up: since when its file has been as it is. */
struct watched {
    struct watched *next;
    char *path;
    struct stat status;
    double since_s;
};

struct claims {
    char *folder;
    char *place; /* "host boot namespace" */
    char text[CLAIM_BYTES];
    int stale_after_s;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    pthread_t heart;
    bool closing;
    struct held *held;
    struct watched *watched;
};

/* ---- who we are ---------------------------------------------------------------------------- */

/* The first word of a small file, or "-". */
static void read_word(const char *path, char word[64])
{
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%63s", word) != 1) snprintf(word, 64, "-");
    if (file) fclose(file);
}

/*
 * State and start time of a process, fields 3 and 22 of /proc/PID/stat, counted behind the name,
 * which may hold anything. A pid is used again, a pid with its start time is not. False where there
 * is no /proc.
 */
static bool read_stat(long pid, char *state, unsigned long long *start)
{
    char path[64], line[1024] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    char *p = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    if (!p || p[1] != ' ') return false;
    *state = p[2];
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    *start = p ? strtoull(p + 1, NULL, 10) : 0;
    return p != NULL;
}

/* Where a pid means something: two containers may share a host's name and even its boot. */
static char *describe_place(void)
{
    char host[256] = "-", boot[64], namespace[64] = "-";
    gethostname(host, sizeof host - 1);
    for (char *p = host; *p; p++)
        if (*p == ' ' || *p == '\n') *p = '_';
    read_word("/proc/sys/kernel/random/boot_id", boot);
    ssize_t n = readlink("/proc/self/ns/pid", namespace, sizeof namespace - 1);
    namespace[n > 0 ? n : 1] = '\0';
    return text_format("%s %s %s", host[0] ? host : "-", boot, namespace);
}

static void describe_self(struct claims *claims)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char state;
    unsigned long long start = 0;
    read_stat((long)getpid(), &state, &start);
    claims->place = describe_place();
    snprintf(claims->text, sizeof claims->text, "%s %ld %llu %lld%09ld\n", claims->place,
             (long)getpid(), start, (long long)now.tv_sec, now.tv_nsec);
}

/* ---- files --------------------------------------------------------------------------------- */

static char *claim_path(const struct claims *claims, const char *name, int generation)
{
    return text_format("%s/%s.%d", claims->folder, name, generation);
}

/* False when there is no such file. A claim being written is read as "",
 * and so judged by its age. */
static bool read_claim(const char *path, char text[CLAIM_BYTES])
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    text[0] = '\0';
    if (file < 0) return errno != ENOENT;
    ssize_t n = read(file, text, CLAIM_BYTES - 1);
    text[n > 0 ? n : 0] = '\0';
    close(file);
    return true;
}

/* 1: made, 0: exists, -1: failed with errno. */
static int create_claim(const struct claims *claims, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == ENOENT && mkdir(claims->folder, 0777) == 0)
        file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return errno == EEXIST ? 0 : -1;
    bool ok = text_write(file, claims->text, strlen(claims->text));
    int why = errno;
    if (close(file) != 0 && ok) {
        why = errno;
        ok = false;
    }
    if (ok) return 1;
    unlink(path);
    errno = why;
    return -1;
}

static bool same_state(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* True once the file has stayed as it is for long enough. */
static bool is_silent(struct claims *claims, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) return false;
    struct watched *w = claims->watched;
    while (w && strcmp(w->path, path) != 0) w = w->next;
    if (!w) {
        w = text_alloc(sizeof *w);
        *w = (struct watched){.next = claims->watched, .path = text_copy(path)};
        claims->watched = w;
    }
    if (!same_state(&w->status, &status)) {
        w->status = status;
        w->since_s = progress_now_s();
    }
    return progress_now_s() - w->since_s > claims->stale_after_s;
}

enum life { ALIVE, DEAD, UNKNOWN };

/* What can be known from /proc. */
static enum life look_up(const struct claims *claims, const char *text)
{
    char host[256], boot[64], namespace[64];
    long pid;
    unsigned long long start;
    if (sscanf(text, "%255s %63s %63s %ld %llu", host, boot, namespace, &pid, &start) != 5)
        return UNKNOWN;
    char *place = text_format("%s %s %s", host, boot, namespace);
    bool here = strcmp(place, claims->place) == 0;
    free(place);
    if (!here || pid <= 0) return UNKNOWN;
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) return DEAD;
    char state;
    unsigned long long now;
    if (!read_stat(pid, &state, &now)) return ALIVE;
    /* A killed process stays in the table, as Z, until its parent asks for it. */
    return state == 'Z' || state == 'X' || now != start ? DEAD : ALIVE;
}

static bool is_dead(struct claims *claims, const char *path, const char *text)
{
    enum life life = look_up(claims, text);
    return life == DEAD || (life == UNKNOWN && is_silent(claims, path));
}

/* ---- claiming ------------------------------------------------------------------------------ */

static bool exists(const struct claims *claims, const char *name, int generation)
{
    char text[CLAIM_BYTES], *path = claim_path(claims, name, generation);
    bool found = read_claim(path, text);
    free(path);
    return found;
}

static bool is_still(const struct claims *claims, const char *name, int generation,
                     const char *text)
{
    char now[CLAIM_BYTES], *path = claim_path(claims, name, generation);
    bool same = read_claim(path, now) && strcmp(now, text) == 0;
    free(path);
    return same;
}

static void hold(struct claims *claims, const char *name, int generation)
{
    struct held *held = text_alloc(sizeof *held);
    *held = (struct held){claims->held, text_copy(name), generation};
    claims->held = held;
}

/* claims->lock is held. */
static enum claim_result take(struct claims *claims, const char *name, struct dk_error *err)
{
    char dead[CLAIM_BYTES] = "";
    for (int g = 0; g < MAX_GENERATIONS; g++) {
        char text[CLAIM_BYTES], *path = claim_path(claims, name, g);
        bool taken = read_claim(path, text), is_mine = false;
        if (!taken) {
            int made = create_claim(claims, path);
            if (made < 0) {
                say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s", path, strerror(errno));
                free(path);
                return CLAIM_FAILED;
            }
            is_mine = made == 1;
            taken = made == 0 && read_claim(path, text);
        }
        if (is_mine) {
            bool beaten = exists(claims, name, g + 1);
            bool moved = g > 0 && !beaten && !is_still(claims, name, g - 1, dead);
            if (beaten || moved) unlink(path);
            free(path);
            if (beaten) continue;
            if (moved) return CLAIM_TAKEN;
            hold(claims, name, g);
            return CLAIM_MINE;
        }
        bool over = taken && is_dead(claims, path, text);
        free(path);
        if (!over) return CLAIM_TAKEN;
        memcpy(dead, text, sizeof dead);
    }
    return CLAIM_TAKEN;
}

enum claim_result claims_take(struct claims *claims, const char *name, struct dk_error *err)
{
    pthread_mutex_lock(&claims->lock);
    enum claim_result result = take(claims, name, err);
    pthread_mutex_unlock(&claims->lock);
    return result;
}

bool claims_wait(struct claims *claims, const char *name, struct dk_error *err)
{
    for (long wait_ns = 1000000;;) {
        enum claim_result result = claims_take(claims, name, err);
        if (result != CLAIM_TAKEN) return result == CLAIM_MINE;
        nanosleep(&(struct timespec){0, wait_ns}, NULL);
        if (wait_ns < 64000000) wait_ns *= 2;
    }
}

static struct held *unhook(struct claims *claims, const char *name)
{
    for (struct held **at = &claims->held; *at; at = &(*at)->next) {
        struct held *held = *at;
        if (strcmp(held->name, name) != 0) continue;
        *at = held->next;
        return held;
    }
    return NULL;
}

static void release(struct claims *claims, struct held *held)
{
    for (int g = 0; g <= held->generation; g++) {
        char *path = claim_path(claims, held->name, g);
        if (g < held->generation || is_still(claims, held->name, g, claims->text)) unlink(path);
        free(path);
    }
    free(held->name);
    free(held);
}

void claims_release(struct claims *claims, const char *name)
{
    pthread_mutex_lock(&claims->lock);
    struct held *held = unhook(claims, name);
    if (held) release(claims, held);
    pthread_mutex_unlock(&claims->lock);
}

bool claims_holds(struct claims *claims, const char *name)
{
    pthread_mutex_lock(&claims->lock);
    struct held *held = claims->held;
    while (held && strcmp(held->name, name) != 0) held = held->next;
    bool ok = held && is_still(claims, name, held->generation, claims->text) &&
              !exists(claims, name, held->generation + 1);
    pthread_mutex_unlock(&claims->lock);
    return ok;
}

size_t claims_sweep(struct claims *claims)
{
    size_t n_others = 0;
    pthread_mutex_lock(&claims->lock);
    DIR *dir = opendir(claims->folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (entry->d_name[0] == '.' || !dot || !dot[1] || dot[1 + strspn(dot + 1, "0123456789")])
            continue;
        char text[CLAIM_BYTES], *path = text_format("%s/%s", claims->folder, entry->d_name);
        if (read_claim(path, text) && strcmp(text, claims->text) != 0) {
            if (look_up(claims, text) == DEAD)
                unlink(path);
            else
                n_others++;
        }
        free(path);
    }
    if (dir) closedir(dir);
    pthread_mutex_unlock(&claims->lock);
    return n_others;
}

/* ---- the heartbeat ------------------------------------------------------------------------- */

static void *beat(void *user)
{
    struct claims *claims = user;
    int every_s = claims->stale_after_s / 6 < 1 ? 1 : claims->stale_after_s / 6;
    pthread_mutex_lock(&claims->lock);
    while (!claims->closing) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += every_s;
        pthread_cond_timedwait(&claims->wake, &claims->lock, &until);
        for (struct held *held = claims->held; held && !claims->closing; held = held->next) {
            char *path = claim_path(claims, held->name, held->generation);
            utimensat(AT_FDCWD, path, NULL, 0);
            free(path);
        }
    }
    pthread_mutex_unlock(&claims->lock);
    return NULL;
}

/* Signals are for the thread that renders. */
static bool start_heart(struct claims *claims)
{
    pthread_condattr_t steady;
    sigset_t all, before;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&claims->wake, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&claims->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(&claims->heart, NULL, beat, claims) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

static void claims_free(struct claims *claims)
{
    pthread_cond_destroy(&claims->wake);
    pthread_mutex_destroy(&claims->lock);
    while (claims->watched) {
        struct watched *next = claims->watched->next;
        free(claims->watched->path);
        free(claims->watched);
        claims->watched = next;
    }
    free(claims->folder);
    free(claims->place);
    free(claims);
}

struct claims *claims_open(const char *folder, int stale_after_s, struct dk_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        say_fail(err, DK_ERROR_FILE, "%s: cannot create: %s", folder, strerror(errno));
        return NULL;
    }
    struct claims *claims = text_alloc(sizeof *claims);
    claims->folder = text_copy(folder);
    claims->stale_after_s = stale_after_s;
    describe_self(claims);
    if (start_heart(claims)) return claims;
    say_fail(err, DK_ERROR_MEMORY, "%s: no thread could be started", folder);
    claims_free(claims);
    return NULL;
}

void claims_close(struct claims *claims)
{
    if (!claims) return;
    pthread_mutex_lock(&claims->lock);
    claims->closing = true;
    pthread_cond_signal(&claims->wake);
    pthread_mutex_unlock(&claims->lock);
    pthread_join(claims->heart, NULL);
    while (claims->held) {
        struct held *held = claims->held;
        claims->held = held->next;
        release(claims, held);
    }
    claims_free(claims);
}
