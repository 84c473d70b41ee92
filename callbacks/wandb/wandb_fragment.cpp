#include "troupe/callbacks/wandb/wandb_fragment.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr std::string_view prefix = "offline-run-";
constexpr std::size_t time_size = 15; // 20260131_235959

std::string time_text(std::chrono::sys_seconds x) {
  auto seconds = std::chrono::system_clock::to_time_t(x);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[time_size + 1];
  return {text, std::strftime(text, sizeof(text), "%Y%m%d_%H%M%S", &parts)};
}

// The time in *name*; nothing if it is no folder of run *id*.
std::optional<std::chrono::sys_seconds> time_of(const std::string& name,
                                                const std::string& id) {
  if (!name.starts_with(prefix)
      || name.size() != prefix.size() + time_size + 1 + id.size()
      || !name.ends_with("-" + id))
    return std::nullopt;
  std::tm parts{};
  auto text = name.substr(prefix.size(), time_size);
  if (::strptime(text.c_str(), "%Y%m%d_%H%M%S", &parts)
      != text.c_str() + time_size)
    return std::nullopt;
  return std::chrono::sys_seconds{std::chrono::seconds{::timegm(&parts)}};
}

// A convenience for people and for W&B's tools; a file system without links
// does without.
void name_latest(const fs::path& root, const std::string& name) {
  boost::system::error_code ignored;
  auto link = root / "latest-run";
  auto fresh = root / ("latest-run.new-" + name);
  fs::create_symlink(name, fresh, ignored);
  if (!ignored)
    fs::rename(fresh, link, ignored);
  if (ignored)
    fs::remove(fresh, ignored);
}

} // namespace

bool wandb_fragment::is_synced() const {
  // Where that cannot be known it is sent once more: W&B takes it twice.
  auto found = look_up(log().string() + ".synced");
  return found && found->exists();
}

expected<std::vector<wandb_fragment>> wandb_fragments(const fs::path& root,
                                                      const std::string& id) {
  std::vector<wandb_fragment> result;
  boost::system::error_code code;
  for (fs::directory_iterator i{root, code}, end; !code && i != end;
       i.increment(code)) {
    auto path = i->path();
    if (auto time = time_of(path.filename().string(), id))
      result.push_back({path, id, *time});
  }
  if (code && code.value() != ENOENT)
    return tl::unexpected{storage_error("list", root, code.value())};
  std::ranges::sort(result, {}, &wandb_fragment::time);
  return result;
}

expected<wandb_fragment>
make_wandb_fragment(const fs::path& root, const std::string& id,
                    std::chrono::system_clock::time_point now) {
  using namespace std::chrono_literals;
  auto time = std::chrono::floor<std::chrono::seconds>(now);
  auto others = wandb_fragments(root, id);
  if (!others)
    return tl::unexpected{others.error()};
  if (!others->empty())
    time = std::max(time, others->back().time + 1s);
  auto name = std::string{prefix} + time_text(time) + "-" + id;
  wandb_fragment result{root / name, id, time};
  for (auto& folder : {result.files(), result.path / "logs"})
    if (auto made = make_folders(folder); !made)
      return tl::unexpected{made.error()};
  name_latest(root, name);
  return result;
}

} // namespace troupe
