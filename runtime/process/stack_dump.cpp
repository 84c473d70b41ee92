#include "troupe/runtime/process/stack_dump.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string_view>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/text.hpp"

// `on_signal` and all functions that it calls run in a signal handler: no
// allocation, no locks but the loader's, for which a thread has `patience_ms`.

namespace troupe::internal {

namespace {

/// A structure at *bytes*, which need not be aligned.
template <class T>
T read_at(const char* bytes) noexcept {
  T result;
  std::memcpy(&result, bytes, sizeof(T));
  return result;
}

} // namespace

bool symbol_table::open(const char* path, const void* base) noexcept {
  close();
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  struct stat status {};
  void* memory = MAP_FAILED;
  if (::fstat(fd, &status) == 0 && status.st_size > 0)
    memory = ::mmap(nullptr, static_cast<std::size_t>(status.st_size),
                    PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED)
    return false;
  file_ = static_cast<char*>(memory);
  size_ = static_cast<std::size_t>(status.st_size);
  base_ = reinterpret_cast<std::uint64_t>(base);
  if (read_sections())
    return true;
  close();
  return false;
}

bool symbol_table::read_sections() noexcept {
  auto* start = at(0, sizeof(Elf64_Ehdr));
  if (!start || std::memcmp(start, ELFMAG, SELFMAG) != 0
      || start[EI_CLASS] != ELFCLASS64)
    return false;
  auto header = read_at<Elf64_Ehdr>(start);
  if (header.e_type != ET_DYN)
    base_ = 0; // Its addresses are those in memory.
  auto section = [&](std::uint64_t i) {
    auto* bytes =
      at(header.e_shoff + i * header.e_shentsize, sizeof(Elf64_Shdr));
    return bytes && i < header.e_shnum ? read_at<Elf64_Shdr>(bytes)
                                       : Elf64_Shdr{};
  };
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    auto table = section(i);
    if (table.sh_type != SHT_SYMTAB)
      continue;
    auto texts = section(table.sh_link);
    auto* names = at(texts.sh_offset, texts.sh_size);
    symbols_ = at(table.sh_offset, table.sh_size);
    symbol_count_ = table.sh_size / sizeof(Elf64_Sym);
    if (!symbols_ || !names || texts.sh_size == 0
        || names[texts.sh_size - 1] != '\0')
      return false;
    names_ = {names, texts.sh_size};
    return true;
  }
  return false;
}

symbol_table::function symbol_table::find(const void* address) const noexcept {
  auto wanted = reinterpret_cast<std::uint64_t>(address) - base_;
  for (std::size_t i = 0; i < symbol_count_; ++i) {
    auto x = read_at<Elf64_Sym>(symbols_ + i * sizeof(Elf64_Sym));
    if (ELF64_ST_TYPE(x.st_info) == STT_FUNC && x.st_value <= wanted
        && wanted - x.st_value < x.st_size && x.st_name < names_.size())
      return {names_.data() + x.st_name, wanted - x.st_value};
  }
  return {};
}

void symbol_table::close() noexcept {
  if (file_)
    ::munmap(file_, size_);
  file_ = nullptr;
  size_ = 0;
  symbols_ = nullptr;
  symbol_count_ = 0;
  names_ = {};
}

const char* symbol_table::at(std::uint64_t begin,
                             std::uint64_t size) const noexcept {
  return begin <= size_ && size <= size_ - begin ? file_ + begin : nullptr;
}

namespace {

/// How long a thread may take to answer.
constexpr int patience_ms = 500;

/// How long it may then take to write its stack.
constexpr int writing_ms = 1000;

/// How long a dump waits for threads that do not answer, all together: the
/// thread that signals the others does not work meanwhile.
constexpr int dump_patience_ms = 2000;

/// How long it waits for each thread after that.
constexpr int least_patience_ms = 10;

std::array<char, 4097> stacks_path{};

/// Where the program itself begins in memory.
const void* program = nullptr;

/// The file that stacks go to; -1: no dump is under way.
std::atomic<int> output{-1};
std::atomic<bool> busy{false};

/// The thread that is to write its stack, negative while it does; 0: none, or
/// it is done.
std::atomic<pid_t> writer{0};

/// The process that answers; forked processes do not.
pid_t answering = 0;

pid_t thread_id() noexcept {
  return static_cast<pid_t>(::syscall(SYS_gettid));
}

void write_text(int file, std::string_view text) noexcept {
  [[maybe_unused]] auto n = ::write(file, text.data(), text.size());
}

void write_number(int file, long x) noexcept {
  std::array<char, 24> text{};
  auto end = std::to_chars(text.data(), text.data() + text.size(), x).ptr;
  write_text(file, {text.data(), static_cast<std::size_t>(end - text.data())});
}

void sleep_ms(long ms) noexcept {
  timespec time{0, ms * 1'000'000};
  ::nanosleep(&time, nullptr);
}

/// A file of /proc below the thread *task*, such as its name.
std::size_t read_task_file(std::string_view task, std::string_view name,
                           char* buffer, std::size_t size) noexcept {
  std::array<char, 96> path{};
  std::string_view folder = "/proc/self/task/";
  if (folder.size() + task.size() + name.size() >= path.size())
    return 0;
  char* end = path.data();
  for (auto part : {folder, task, name})
    end += part.copy(end, part.size());
  int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  auto n = ::read(file, buffer, size);
  ::close(file);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

/// Whether the thread *task* blocks the signal that asks for its stack; false
/// if that is unknown.
bool blocks_signal(std::string_view task) noexcept {
  std::array<char, 4096> buffer{};
  std::string_view text{
    buffer.data(),
    read_task_file(task, "/status", buffer.data(), buffer.size())};
  constexpr std::string_view name = "\nSigBlk:\t";
  auto begin = text.find(name);
  if (begin == std::string_view::npos)
    return false;
  text.remove_prefix(begin + name.size());
  std::uint64_t blocked = 0;
  std::from_chars(text.data(), text.data() + text.size(), blocked, 16);
  return (blocked >> (stack_signal() - 1) & 1) != 0;
}

void write_header(int file, std::string_view task) noexcept {
  std::array<char, 64> name{};
  auto n = read_task_file(task, "/comm", name.data(), name.size());
  while (n > 0 && name[n - 1] == '\n')
    --n;
  write_text(file, "\nthread ");
  write_text(file, task);
  write_text(file, " (");
  write_text(file, {name.data(), n});
  write_text(file, ")\n");
}

/// A line that is built up and written at once.
class line {
public:
  void add(std::string_view x) noexcept {
    length_ += x.copy(text_.data() + length_, text_.size() - length_ - 1);
  }

  void add_hex(std::uint64_t x) noexcept {
    std::array<char, 24> text{};
    auto end = std::to_chars(text.data(), text.data() + text.size(), x, 16).ptr;
    add("+0x");
    add({text.data(), static_cast<std::size_t>(end - text.data())});
  }

  void write_to(int file) noexcept {
    text_[length_++] = '\n';
    write_text(file, {text_.data(), length_});
  }

private:
  std::array<char, 1024> text_;
  std::size_t length_ = 0;
};

/// Writes "/path/program(+0x1234) function+0x56"; *known* is the module in
/// *symbols*.
void write_frame(int file, const void* address, symbol_table& symbols,
                 const char*& known) noexcept {
  // A return address may lie behind the end of its function.
  auto* call = static_cast<const char*>(address) - 1;
  line text;
  Dl_info module{};
  if (::dladdr(call, &module) == 0 || !module.dli_fname) {
    text.add("?");
    text.add_hex(reinterpret_cast<std::uint64_t>(address));
    text.write_to(file);
    return;
  }
  if (known != module.dli_fname) {
    known = module.dli_fname;
    // The program may have been started by a path that leads nowhere now.
    if (!symbols.open(known, module.dli_fbase) && module.dli_fbase == program)
      symbols.open("/proc/self/exe", module.dli_fbase);
  }
  text.add(module.dli_fname);
  text.add("(");
  text.add_hex(static_cast<std::uint64_t>(
    call + 1 - static_cast<const char*>(module.dli_fbase)));
  text.add(")");
  if (auto function = symbols.find(call); !function.name.empty()) {
    text.add(" ");
    text.add(function.name.data());
    text.add_hex(function.offset + 1);
  } else if (module.dli_sname) {
    text.add(" ");
    text.add(module.dli_sname);
    text.add_hex(static_cast<std::uint64_t>(
      call + 1 - static_cast<const char*>(module.dli_saddr)));
  }
  text.write_to(file);
}

void write_own_stack(int file) noexcept {
  std::array<void*, 128> frames{};
  auto n = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  symbol_table symbols;
  const char* known = nullptr;
  for (int i = 0; i < n; ++i)
    write_frame(file, frames[static_cast<std::size_t>(i)], symbols, known);
}

/// Waits up to *limit_ms* while `writer` is *thread*. Returns for how long.
int wait_while_writer_is(pid_t thread, int limit_ms) noexcept {
  constexpr int pause_ms = 2;
  int waited = 0;
  for (; waited < limit_ms && writer.load() == thread; waited += pause_ms)
    sleep_ms(pause_ms);
  return waited;
}

/// *patience* is what is left of the dump's.
void have_stack_written(int file, std::string_view task,
                        int& patience) noexcept {
  pid_t thread = 0;
  std::from_chars(task.data(), task.data() + task.size(), thread);
  write_header(file, task);
  if (thread == thread_id()) {
    write_own_stack(file);
    return;
  }
  if (blocks_signal(task)) {
    write_text(file, "blocks the signal that asks for its stack\n");
    return;
  }
  if (writer.load() != 0) {
    write_text(file, "was not asked: another thread is still writing\n");
    return;
  }
  auto is_late = patience <= 0;
  writer.store(thread);
  if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) == 0)
    patience -= wait_while_writer_is(
      thread, is_late ? least_patience_ms : std::min(patience, patience_ms));
  if (auto asked = thread; writer.compare_exchange_strong(asked, 0))
    write_text(
      file,
      is_late
        ? "does not answer at once, and others took long\n"
        : "does not answer: it has ended or is in an uninterruptible call\n");
  else
    wait_while_writer_is(-thread, writing_ms);
}

void for_each_task(int file) noexcept {
  struct entry { // linux_dirent64
    std::uint64_t inode;
    std::int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[1];
  };
  int folder = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return;
  auto patience = dump_patience_ms;
  alignas(entry) std::array<char, 2048> buffer{};
  for (;;) {
    auto n = ::syscall(SYS_getdents64, folder, buffer.data(), buffer.size());
    if (n <= 0)
      break;
    for (long at = 0; at < n;) {
      auto* x = reinterpret_cast<entry*>(buffer.data() + at);
      at += x->length;
      if (x->name[0] != '.')
        have_stack_written(file, x->name, patience);
    }
  }
  ::close(folder);
}

void write_dump(int file) noexcept {
  write_text(file, "== stacks of process ");
  write_number(file, ::getpid());
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  write_text(file, ", ");
  write_number(file, now.tv_sec);
  write_text(file, " s after 1970\n");
  output.store(file);
  for_each_task(file);
  output.store(-1);
  write_text(file, "\n== end\n");
}

/// Like `open_own_file`: a pipe in the file's place does not block.
int open_stacks() noexcept {
  int file = ::open(
    stacks_path.data(),
    O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  struct stat found {};
  if (file < 0 || (::fstat(file, &found) == 0 && S_ISREG(found.st_mode)))
    return file;
  ::close(file);
  return -1;
}

void dump_all() noexcept {
  if (busy.exchange(true))
    return;
  int file = open_stacks();
  if (file >= 0)
    write_dump(file);
  // A thread that still writes must not write to a file that reuses the number.
  auto done = writer.load() == 0;
  busy.store(false);
  if (file >= 0 && done)
    ::close(file);
}

void on_signal(int signal, siginfo_t* info, void*) {
  if (::getpid() != answering)
    return take_default_action(signal);
  int saved = errno;
  if (info->si_code == SI_TKILL) {
    // Part of a dump, unless it has stopped waiting for this thread.
    auto me = thread_id();
    int file = output.load();
    if (auto asked = me; writer.compare_exchange_strong(asked, -me)) {
      write_own_stack(file);
      writer.store(0);
    }
  } else {
    dump_all();
  }
  errno = saved;
}

} // namespace

void answer_with_stacks(const std::string& path) {
  if (path.size() >= stacks_path.size())
    return;
  path.copy(stacks_path.data(), path.size());
  // The first call loads a library, which a handler must not.
  std::array<void*, 1> warm{};
  ::backtrace(warm.data(), 1);
  Dl_info module{};
  if (::dladdr(reinterpret_cast<void*>(::getauxval(AT_PHDR)), &module) != 0)
    program = module.dli_fbase;
  answering = ::getpid();
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  ::sigaction(stack_signal(), &action, nullptr);
}

bool ask_for_stacks(pid_t pid) {
  // Opened before the check, so that both refer to the same process.
  auto process = open_pidfd(pid);
  if (!process)
    return false;
  std::ifstream status{concat("/proc/", pid, "/status")};
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("SigCgt:")) {
      auto caught = std::stoull(line.substr(7), nullptr, 16);
      if ((caught >> (stack_signal() - 1) & 1) == 0)
        return false;
      send_signal(process, stack_signal());
      return true;
    }
  return false;
}

} // namespace troupe::internal
