/* File operations of a process below one folder: the n-th one fails, or all of them are recorded. Loaded by LD_PRELOAD.
 *
 * fault_arm(root, kind, at, count): of the operations that the kind applies to, number `at` and the following
 * `count - 1` fail. fault_record(root, acknowledgements, path): every operation is appended to a file, see `Entry`, and
 * so are writes to the file `acknowledgements`. fault_count() is the number of operations so far. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { FULL = 1, BAD, HANDLES, FROZEN, SHORT, TORN, KILL };
enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, LINK, ACKNOWLEDGE };

struct entry {
    uint32_t kind, path, other, size;
    uint64_t offset;
};

static char root[PATH_MAX], acknowledgements[PATH_MAX];
static size_t root_length;
static int kind, record = -1;
static long at, last, seen;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void set_root(const char *path) {
    strncpy(root, path, sizeof root - 1);
    root_length = strlen(root);
    seen = 0;
}

void fault_arm(const char *path, int what, long first, long count) {
    set_root(path);
    kind = what;
    at = first;
    last = first + count - 1;
}

void fault_record(const char *path, const char *acknowledged, const char *into) {
    set_root(path);
    strncpy(acknowledgements, acknowledged, sizeof acknowledgements - 1);
    record = syscall(SYS_openat, AT_FDCWD, into, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
}

long fault_count(void) { return seen; }

static int below(const char *path) {
    return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int name_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

static int absolute(int folder, const char *path, char *found) {
    char base[PATH_MAX];
    if (path[0] == '/') {
        snprintf(found, PATH_MAX, "%s", path);
        return 1;
    }
    if (folder == AT_FDCWD || !name_of(folder, base)) return 0;
    return snprintf(found, PATH_MAX, "%s/%s", base, path) < PATH_MAX;
}

static void note(int what, const char *path, const char *other, uint64_t offset, const void *data, size_t size) {
    if (record < 0) return;
    struct entry head = {what, strlen(path), other ? strlen(other) : 0, data ? size : 0, offset};
    if (!data) head.offset = offset;
    syscall(SYS_write, record, &head, sizeof head);
    syscall(SYS_write, record, path, head.path);
    if (head.other) syscall(SYS_write, record, other, head.other);
    if (head.size) syscall(SYS_write, record, data, head.size);
}

/* What becomes of an operation: 0 if it is done, else an error; TORN and SHORT are for writes alone. */
static int fault(int opens, int writes, int changes) {
    if (!kind) {
        seen++;
        return 0;
    }
    int applies = kind == HANDLES ? opens : kind == FROZEN || kind == FULL ? changes : kind == SHORT || kind == TORN ? writes : 1;
    if (!applies) return 0;
    seen++;
    if (seen < at || seen > last) return 0;
    switch (kind) {
    case FULL: return ENOSPC;
    case BAD: return EIO;
    case HANDLES: return EMFILE;
    case FROZEN: return EROFS;
    case KILL: kill(getpid(), SIGKILL); pause();
    }
    return -kind;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define FAILS(path, opens, writes, changes) \
    if (below(path)) { \
        int error = fault(opens, writes, changes); \
        if (error > 0) { errno = error; pthread_mutex_unlock(&lock); return -1; } \
    }

#define OPEN(name, head, folder, tail) \
    int name head { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        char found[PATH_MAX]; \
        if (!root_length || !absolute(folder, path, found) || !below(found)) return real tail; \
        pthread_mutex_lock(&lock); \
        struct stat before; \
        int made = (flags & O_CREAT) && lstat(found, &before); \
        int cut = (flags & O_TRUNC) && !made; \
        FAILS(found, 1, 0, made || cut) \
        int result = real tail; \
        if (result >= 0 && made) note(CREATE, found, NULL, 0, NULL, 0); \
        if (result >= 0 && cut) note(TRUNCATE, found, NULL, 0, NULL, 0); \
        pthread_mutex_unlock(&lock); \
        return result; \
    }

OPEN(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, mode))
OPEN(openat, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))
OPEN(openat64, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, mode))

#define PUT(name, head, tail, where) \
    ssize_t name head { \
        REAL(name); \
        char found[PATH_MAX]; \
        if (!root_length || !name_of(descriptor, found)) return real tail; \
        int told = acknowledgements[0] && !strcmp(found, acknowledgements); \
        if (!told && !below(found)) return real tail; \
        pthread_mutex_lock(&lock); \
        if (!told) { \
            int error = fault(0, 1, 1); \
            if (error > 0) { errno = error; pthread_mutex_unlock(&lock); return -1; } \
            if (error == -SHORT && size > 1) size /= 2; \
            if (error == -TORN) { size /= 2; if (real tail < 0) _exit(9); kill(getpid(), SIGKILL); pause(); } \
        } \
        off_t offset = where; \
        ssize_t result = real tail; \
        if (result > 0) note(told ? ACKNOWLEDGE : WRITE, found, NULL, offset, data, result); \
        pthread_mutex_unlock(&lock); \
        return result; \
    }

static off_t place(int descriptor) {
    struct stat found;
    if (fcntl(descriptor, F_GETFL) & O_APPEND) return fstat(descriptor, &found) ? 0 : found.st_size;
    return lseek(descriptor, 0, SEEK_CUR);
}

PUT(write, (int descriptor, const void *data, size_t size), (descriptor, data, size), place(descriptor))
PUT(pwrite, (int descriptor, const void *data, size_t size, off_t begin), (descriptor, data, size, begin), begin)
PUT(pwrite64, (int descriptor, const void *data, size_t size, off64_t begin), (descriptor, data, size, begin), begin)

#define ON_DESCRIPTOR(name, head, tail, what, position) \
    int name head { \
        REAL(name); \
        char found[PATH_MAX]; \
        if (!root_length || !name_of(descriptor, found) || !below(found)) return real tail; \
        pthread_mutex_lock(&lock); \
        FAILS(found, 0, 0, what == TRUNCATE) \
        int result = real tail; \
        if (!result) note(what, found, NULL, position, NULL, 0); \
        pthread_mutex_unlock(&lock); \
        return result; \
    }

ON_DESCRIPTOR(fsync, (int descriptor), (descriptor), SYNC, 0)
ON_DESCRIPTOR(fdatasync, (int descriptor), (descriptor), SYNC, 0)
ON_DESCRIPTOR(ftruncate, (int descriptor, off_t size), (descriptor, size), TRUNCATE, size)
ON_DESCRIPTOR(ftruncate64, (int descriptor, off64_t size), (descriptor, size), TRUNCATE, size)

#define ON_NAME(name, head, folder, tail, what, position) \
    int name head { \
        REAL(name); \
        char found[PATH_MAX]; \
        if (!root_length || !absolute(folder, path, found) || !below(found)) return real tail; \
        pthread_mutex_lock(&lock); \
        FAILS(found, 0, 0, 1) \
        int result = real tail; \
        if (!result) note(what, found, NULL, position, NULL, 0); \
        pthread_mutex_unlock(&lock); \
        return result; \
    }

ON_NAME(truncate, (const char *path, off_t size), AT_FDCWD, (path, size), TRUNCATE, size)
ON_NAME(truncate64, (const char *path, off64_t size), AT_FDCWD, (path, size), TRUNCATE, size)
ON_NAME(unlink, (const char *path), AT_FDCWD, (path), UNLINK, 0)
ON_NAME(rmdir, (const char *path), AT_FDCWD, (path), UNLINK, 0)
ON_NAME(unlinkat, (int folder, const char *path, int flags), folder, (folder, path, flags), UNLINK, 0)
ON_NAME(mkdir, (const char *path, mode_t mode), AT_FDCWD, (path, mode), MKDIR, 0)
ON_NAME(mkdirat, (int folder, const char *path, mode_t mode), folder, (folder, path, mode), MKDIR, 0)

#define ON_NAMES(name, head, folder, other_folder, tail, what) \
    int name head { \
        REAL(name); \
        char found[PATH_MAX], target[PATH_MAX]; \
        if (!root_length || !absolute(folder, path, found) || !absolute(other_folder, other, target) || !below(target)) \
            return real tail; \
        pthread_mutex_lock(&lock); \
        FAILS(target, 0, 0, 1) \
        int result = real tail; \
        if (!result) note(what, found, target, 0, NULL, 0); \
        pthread_mutex_unlock(&lock); \
        return result; \
    }

ON_NAMES(rename, (const char *path, const char *other), AT_FDCWD, AT_FDCWD, (path, other), RENAME)
ON_NAMES(renameat, (int folder, const char *path, int other_folder, const char *other), folder, other_folder,
         (folder, path, other_folder, other), RENAME)
ON_NAMES(link, (const char *path, const char *other), AT_FDCWD, AT_FDCWD, (path, other), LINK)
ON_NAMES(linkat, (int folder, const char *path, int other_folder, const char *other, int flags), folder, other_folder,
         (folder, path, other_folder, other, flags), LINK)
