/* Preloaded: below the folder REFUSES_BELOW there are no locks, and with REFUSES_LINKS no hard links either. Each refusal
 * leaves its name in the file REFUSES_LOG. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int below(const char *path) {
    const char *folder = getenv("REFUSES_BELOW");
    return folder && !strncmp(path, folder, strlen(folder));
}

static int is_below(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

static int refuse(const char *what, int error) {
    const char *name = getenv("REFUSES_LOG");
    int log = name ? open(name, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (log >= 0) {
        if (write(log, what, strlen(what)) < 0) abort();
        close(log);
    }
    errno = error;
    return -1;
}

int flock(int file, int operation) {
    if (is_below(file)) return refuse("flock\n", ENOLCK);
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(file, operation);
}

static int control(const char *name, int file, int command, void *argument) {
    if ((command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) && is_below(file))
        return refuse("fcntl\n", ENOLCK);
    return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, name))(file, command, argument);
}

int fcntl(int file, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return control("fcntl", file, command, argument);
}

int fcntl64(int file, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return control("fcntl64", file, command, argument);
}

int link(const char *from, const char *to) {
    if (getenv("REFUSES_LINKS") && below(to)) return refuse("link\n", EPERM);
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "link"))(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    if (getenv("REFUSES_LINKS") && below(to)) return refuse("link\n", EPERM);
    return ((int (*)(int, const char *, int, const char *, int))dlsym(RTLD_NEXT, "linkat"))(from_folder, from, to_folder, to, flags);
}
