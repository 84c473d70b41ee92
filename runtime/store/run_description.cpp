#include "troupe/runtime/store/run_description.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Far more than a description needs.
constexpr std::size_t max_bytes = 64 * 1024 * 1024;

std::string user_name() {
  passwd entry{};
  passwd* found = nullptr;
  char buffer[4096];
  auto uid = ::getuid();
  if (::getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) == 0 && found)
    return found->pw_name;
  return std::to_string(uid);
}

} // namespace

namespace json {

template <class Fields>
void fields_of(Fields& f, run_description& x) {
  f.format(1)("name", x.name)("id", x.id);
  f("begun", x.begun)("time", x.time);
  f("host", x.host)("user", x.user)("program", x.program)("pid", x.pid);
  f("troupe", x.troupe)("compiler", x.compiler)("config", x.config);
  f.added("former_ids", x.former_ids);
}

} // namespace json

namespace {

expected<run_description> from_json(const std::string& text,
                                    const fs::path& path) {
  return verify_sum(text, path.string()).and_then([&] {
    return json::read<run_description>(text, path.string(),
                                       json::from_fields<run_description>);
  });
}

std::vector<std::string> changes_between(const run_description& before,
                                         const run_description& now) {
  std::vector<std::string> result;
  if (before.program != now.program)
    result.push_back("the program is " + now.program + " instead of "
                     + before.program);
  if (before.config != now.config)
    result.push_back("another config of the loop");
  return result;
}

} // namespace

std::string new_id() {
  std::string result;
  append_hex(result, random_bits());
  append_hex(result, random_bits());
  return result;
}

expected<run_description> describe_run(const held_folder& run,
                                       const std::string& name,
                                       const std::string& config) {
  auto now = timestamp(std::chrono::system_clock::now());
  run_description x{.name = name,
                    .id = new_id(),
                    .former_ids = {},
                    .begun = now,
                    .time = now,
                    .host = own_host_name(),
                    .user = user_name(),
                    .program = own_program().value_or(""),
                    .pid = static_cast<std::uint64_t>(::getpid()),
                    .troupe = TROUPE_VERSION,
                    .compiler = __VERSION__,
                    .config = config,
                    .id_is_new = true,
                    .why_new = "run.json is missing",
                    .changes = {}};
  // Without a description, or with a damaged one, the run gets a new id. One
  // that cannot be read now, or is of a later format, is not replaced.
  struct stat there {};
  if (auto code = run.look_up(run_layout::description, there); code == 0) {
    auto earlier =
      run.read_file(run_layout::description, max_bytes)
        .and_then([&](const std::string& bytes) {
          return from_json(bytes, run.path() / run_layout::description);
        });
    if (earlier) {
      x.id = earlier->id;
      x.former_ids = std::move(earlier->former_ids);
      x.id_is_new = false;
      x.begun = earlier->begun;
      x.why_new.clear();
      x.changes = changes_between(*earlier, x);
    } else if (earlier.error().code != ec::corrupt) {
      return tl::unexpected{earlier.error()};
    } else {
      x.why_new = earlier.error().message;
    }
  } else if (code != ENOENT) {
    return tl::unexpected{
      storage_error("look up", run.path() / run_layout::description, code)};
  }
  return x;
}

expected<void> save_description(const held_folder& run,
                                const run_description& x) {
  auto text = json::open_object(x);
  append_sum(text);
  return check_size(run.path() / run_layout::description, text, max_bytes)
    .and_then([&] { return run.replace_file(run_layout::description, text); });
}

expected<run_description> read_description(const fs::path& run_path) {
  auto path = run_path / run_layout::description;
  return read_file(path, max_bytes).and_then([&](const std::string& text) {
    return from_json(text, path);
  });
}

} // namespace troupe::internal
