/* lost_file.c - a sentence in place of a crash when a file in use is cut short. */
/* SPDX-License-Identifier: MIT */
#include "lost_file.h"

#include "interrupt.h"
#include "say.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* A signal handler may call little more than read and write, so the list of mappings is read by
 * hand, byte for byte. */
struct source {
    int file;
    char buffer[1024];
    ssize_t n, at;
};

/* The next byte; -1 at the end. */
static int take(struct source *s)
{
    if (s->at == s->n) {
        s->n = s->file >= 0 ? read(s->file, s->buffer, sizeof s->buffer) : 0;
        s->at = 0;
        if (s->n <= 0) return -1;
    }
    return (unsigned char)s->buffer[s->at++];
}

/* A hexadecimal number and the byte behind it, which is left out. */
static uintptr_t take_number(struct source *s, int *c)
{
    static const char digits[] = "0123456789abcdef";
    uintptr_t value = 0;
    const char *digit;
    while ((*c = take(s)) > 0 && (digit = strchr(digits, *c)))
        value = value << 4 | (uintptr_t)(digit - digits);
    return value;
}

/*
 * The file mapped at an address, from /proc/self/maps: lines of "begin-end rights offset device
 * inode   path". Empty where there is none.
 */
static void find_name(uintptr_t address, char *name, size_t size)
{
    struct source s = {.file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    size_t n = 0;
    bool found = false;
    for (int c = 0; c >= 0 && !found;) {
        uintptr_t begin = take_number(&s, &c), end = take_number(&s, &c);
        found = address >= begin && address < end;
        bool in_path = false;
        while ((c = take(&s)) >= 0 && c != '\n') {
            in_path = in_path || c == '/';
            if (found && in_path && n + 1 < size)
                name[n++] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
        }
    }
    name[n] = '\0';
    if (s.file >= 0) close(s.file);
}

/* A mutable global, as in interrupt.c: several threads may come upon the gap at once, and one of
 * them speaks. */
static atomic_flag speaking = ATOMIC_FLAG_INIT;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char before[] = "darkroom: ", other[] = "a mapped file",
                      after[] = ": a part that was there is gone or cannot be read; "
                                "copy or download it again, and let it alone while it is in use\n";
    char name[4096];
    (void)number;
    (void)context;
    while (atomic_flag_test_and_set(&speaking)) pause();
    find_name((uintptr_t)info->si_addr, name, sizeof name);
    const char *texts[] = {before, name[0] ? name : other, after};
    for (int i = 0; i < 3; i++)
        if (write(STDERR_FILENO, texts[i], strlen(texts[i])) < 0) break;
    interrupt_leave(EXIT_FAILED);
}

void lost_file_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
