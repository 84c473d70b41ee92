// Preloaded by a campaign: makes the n-th call of a kind that concerns a file of the run fail with an errno, or delays
// it; once, or from then on.
//
//   CHAOS_SHIM="calls=open,write;path=/storage/run;nth=3;errno=5;delay_us=0;for_good=0;role=driver;once=/token;log=/file"
//
// role: "driver" is the process that was started, "rank" is every other. `once` is a file: who removes it, fails; so that
// of all processes of a case only one call fails. Every call that failed or waited is a line of `log`.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct {
  char calls[128];
  char path[512];
  char file[128]; // Part of the path; empty: any.
  char once[512];
  char log[512];
  long nth, code, delay_us;
  int for_good, role; // 0: any, 1: driver, 2: rank
} settings;
static pid_t home;
static atomic_long count;
static int armed;

static void copy_field(char* to, size_t room, const char* spec, const char* name) {
  char key[32];
  snprintf(key, sizeof(key), ";%s=", name);
  const char* at = strstr(spec, key);
  to[0] = 0;
  if (!at)
    return;
  at += strlen(key);
  size_t size = strcspn(at, ";");
  if (size >= room)
    _exit(99);
  memcpy(to, at, size);
  to[size] = 0;
}

static long number_field(const char* spec, const char* name, long fallback) {
  char text[32];
  copy_field(text, sizeof(text), spec, name);
  return text[0] ? atol(text) : fallback;
}

__attribute__((constructor)) static void read_settings(void) {
  const char* given = getenv("CHAOS_SHIM");
  if (!given || getenv("TROUPE_SPAWNER"))
    return; // A spawner that was started again would count as the driver.
  char spec[2048], role[16];
  if (snprintf(spec, sizeof(spec), ";%s", given) >= (int) sizeof(spec))
    _exit(99);
  copy_field(settings.calls, sizeof(settings.calls), spec, "calls");
  copy_field(settings.path, sizeof(settings.path), spec, "path");
  copy_field(settings.file, sizeof(settings.file), spec, "file");
  copy_field(settings.once, sizeof(settings.once), spec, "once");
  copy_field(settings.log, sizeof(settings.log), spec, "log");
  copy_field(role, sizeof(role), spec, "role");
  settings.nth = number_field(spec, "nth", 1);
  settings.code = number_field(spec, "errno", 0);
  settings.delay_us = number_field(spec, "delay_us", 0);
  settings.for_good = (int) number_field(spec, "for_good", 0);
  settings.role = strcmp(role, "driver") == 0 ? 1 : strcmp(role, "rank") == 0 ? 2 : 0;
  home = getpid();
  armed = settings.path[0] && settings.log[0];
}

static int is_listed(const char* call) {
  size_t size = strlen(call);
  for (const char* at = settings.calls; (at = strstr(at, call)); at += size)
    if ((at == settings.calls || at[-1] == ',') && (at[size] == 0 || at[size] == ','))
      return 1;
  return 0;
}

static int is_ours(const char* path) {
  return strncmp(path, settings.path, strlen(settings.path)) == 0
         && (!settings.file[0] || strstr(path, settings.file));
}

static void note(const char* call, const char* path) {
  char text[1200];
  int size = snprintf(text, sizeof(text), "%d %s %s %ld\n", (int) getpid(), call, path, settings.code);
  long fd = syscall(SYS_openat, AT_FDCWD, settings.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) {
    syscall(SYS_write, (int) fd, text, (size_t) size);
    syscall(SYS_close, (int) fd);
  }
}

// Whether *call* on *path* is to fail; waits if it is to be delayed.
static int fails(const char* call, const char* path) {
  if (!armed || !is_listed(call) || !is_ours(path))
    return 0;
  if (settings.role && (getpid() == home) != (settings.role == 1))
    return 0;
  long n = atomic_fetch_add(&count, 1) + 1;
  if (settings.for_good ? n < settings.nth : n != settings.nth)
    return 0;
  if (!settings.for_good && settings.once[0]
      && syscall(SYS_unlinkat, AT_FDCWD, settings.once, 0) != 0)
    return 0;
  int before = errno;
  note(call, path);
  struct timespec rest = {settings.delay_us / 1000000, settings.delay_us % 1000000 * 1000};
  while (settings.delay_us && nanosleep(&rest, &rest) != 0)
    continue;
  errno = settings.code ? (int) settings.code : before;
  return settings.code != 0;
}

static int fails_at(const char* call, int folder, const char* name) {
  char path[1024], link[64];
  if (!armed || !name)
    return 0;
  if (name[0] == '/' || folder == AT_FDCWD)
    return fails(call, name);
  snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
  ssize_t size = readlink(link, path, sizeof(path) - 2);
  if (size < 0)
    return 0;
  path[size] = 0;
  if (name[0] && (size_t) size + strlen(name) + 2 < sizeof(path)) {
    path[size] = '/';
    strcpy(path + size + 1, name);
  }
  return fails(call, path);
}

static int fails_on(const char* call, int fd) {
  int before = errno;
  int result = fails_at(call, fd, "");
  if (!result)
    errno = before;
  return result;
}

#define NEXT(type, name, arguments) \
  static type(*next) arguments; \
  if (!next) \
    next = (type(*) arguments) dlsym(RTLD_NEXT, #name)

#define MODE_OF(flags) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list rest; \
    va_start(rest, flags); \
    mode = va_arg(rest, mode_t); \
    va_end(rest); \
  }

#define OPEN(name) \
  int name(const char* path, int flags, ...) { \
    MODE_OF(flags) \
    NEXT(int, name, (const char*, int, ...)); \
    return fails_at("open", AT_FDCWD, path) ? -1 : next(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
  int name(int folder, const char* path, int flags, ...) { \
    MODE_OF(flags) \
    NEXT(int, name, (int, const char*, int, ...)); \
    return fails_at("open", folder, path) ? -1 : next(folder, path, flags, mode); \
  }
OPENAT(openat)
OPENAT(openat64)

#define STAT(name, type) \
  int name(const char* restrict path, struct type* restrict to) { \
    NEXT(int, name, (const char*, struct type*)); \
    return fails_at("stat", AT_FDCWD, path) ? -1 : next(path, to); \
  }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

#define FSTAT(name, type) \
  int name(int fd, struct type* to) { \
    NEXT(int, name, (int, struct type*)); \
    return fails_on("stat", fd) ? -1 : next(fd, to); \
  }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

#define FSTATAT(name, type) \
  int name(int folder, const char* restrict path, struct type* restrict to, int flags) { \
    NEXT(int, name, (int, const char*, struct type*, int)); \
    return fails_at("stat", folder, path) ? -1 : next(folder, path, to, flags); \
  }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

int statx(int folder, const char* restrict path, int flags, unsigned mask, struct statx* restrict to) {
  NEXT(int, statx, (int, const char*, int, unsigned, struct statx*));
  return fails_at("stat", folder, path) ? -1 : next(folder, path, flags, mask, to);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  NEXT(ssize_t, write, (int, const void*, size_t));
  return fails_on("write", fd) ? -1 : next(fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec* parts, int n) {
  NEXT(ssize_t, writev, (int, const struct iovec*, int));
  return fails_on("write", fd) ? -1 : next(fd, parts, n);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t at) {
  NEXT(ssize_t, pwrite, (int, const void*, size_t, off_t));
  return fails_on("write", fd) ? -1 : next(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t at) {
  NEXT(ssize_t, pwrite64, (int, const void*, size_t, off64_t));
  return fails_on("write", fd) ? -1 : next(fd, bytes, size, at);
}

int fsync(int fd) {
  NEXT(int, fsync, (int));
  return fails_on("fsync", fd) ? -1 : next(fd);
}

int fdatasync(int fd) {
  NEXT(int, fdatasync, (int));
  return fails_on("fsync", fd) ? -1 : next(fd);
}

int rename(const char* from, const char* to) {
  NEXT(int, rename, (const char*, const char*));
  return fails_at("rename", AT_FDCWD, to) ? -1 : next(from, to);
}

int renameat(int a, const char* from, int b, const char* to) {
  NEXT(int, renameat, (int, const char*, int, const char*));
  return fails_at("rename", b, to) ? -1 : next(a, from, b, to);
}

int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  NEXT(int, renameat2, (int, const char*, int, const char*, unsigned));
  return fails_at("rename", b, to) ? -1 : next(a, from, b, to, flags);
}

int unlink(const char* path) {
  NEXT(int, unlink, (const char*));
  return fails_at("unlink", AT_FDCWD, path) ? -1 : next(path);
}

int unlinkat(int folder, const char* path, int flags) {
  NEXT(int, unlinkat, (int, const char*, int));
  return fails_at("unlink", folder, path) ? -1 : next(folder, path, flags);
}

int rmdir(const char* path) {
  NEXT(int, rmdir, (const char*));
  return fails_at("unlink", AT_FDCWD, path) ? -1 : next(path);
}

void* mmap(void* at, size_t size, int access, int flags, int fd, off_t offset) {
  NEXT(void*, mmap, (void*, size_t, int, int, int, off_t));
  return fd >= 0 && fails_on("mmap", fd) ? MAP_FAILED : next(at, size, access, flags, fd, offset);
}
