#include "troupe/runtime/run/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "troupe/runtime/storage/checked_text.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_writer.hpp"

namespace troupe {

namespace {

std::string host_name() {
  utsname host{};
  return ::uname(&host) == 0 ? host.nodename : "unknown host";
}

std::string utc_now() {
  auto now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// The lock file says who holds it. It is written after the lock was taken, so a
// reader may find it empty.
std::string holder_of(const fs::path& lock) {
  auto text = read_file(lock, 4096);
  return text && !text->empty() ? *text : "another process";
}

expected<unique_fd> take_lock(const fs::path& path) {
  auto file = open_file(path, O_RDWR | O_CREAT, "open");
  if (!file)
    return file;
  while (::flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return failure(ec::conflict, "the run " + path.parent_path().string()
                                     + " is held by " + holder_of(path));
    if (errno != EINTR)
      return tl::unexpected{storage_error("lock", path, errno)};
  }
  auto me = "pid " + std::to_string(::getpid()) + " on " + host_name();
  if (::ftruncate(file->get(), 0) != 0
      || ::pwrite(file->get(), me.data(), me.size(), 0) < 0)
    return tl::unexpected{storage_error("write", path, errno)};
  return file;
}

void append_text(std::string& out, const char* name, std::string_view text) {
  out += std::string{",\n\""} + name + "\":";
  json::append(out, text);
}

} // namespace

expected<run_folder> run_folder::open(const fs::path& storage_path,
                                      const std::string& name) {
  auto path = storage_path / name;
  if (auto ok = make_folders(path); !ok)
    return tl::unexpected{ok.error()};
  auto lock = take_lock(path / "lock");
  if (!lock)
    return tl::unexpected{lock.error()};
  run_folder result{std::move(path), std::move(*lock)};
  for (auto& folder : {result.checkpoints(), result.logs(), result.sinks()})
    if (auto ok = make_folders(folder); !ok)
      return tl::unexpected{ok.error()};
  return result;
}

expected<void> run_folder::describe(const std::string& name,
                                    const std::string& config_text) const {
  std::string out = "{\"format\":1";
  append_text(out, "name", name);
  append_text(out, "time", utc_now());
  append_text(out, "host", host_name());
  out += ",\n\"pid\":" + std::to_string(::getpid());
  out += ",\n\"uid\":" + std::to_string(::getuid());
  append_text(out, "troupe", TROUPE_VERSION);
  append_text(out, "compiler", __VERSION__);
  append_text(out, "config", config_text);
  append_sum(out);
  return replace_file(path_ / "run.json", out);
}

} // namespace troupe
