#include "troupe/runtime/checkpoint/checkpoint.hpp"

#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_reader.hpp"
#include "troupe/runtime/storage/json_writer.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_metadata_bytes = 16 * 1024 * 1024;

} // namespace

expected<fs::path> checkpoint::to_directory(const fs::path& target) const {
  boost::system::error_code code;
  fs::create_directories(target, code);
  if (code)
    return tl::unexpected{storage_error("make folder", target, code.value())};
  return copy_files(path_, target).map([&] { return target; });
}

expected<void> checkpoint::verify() const {
  return read_manifest(path_).and_then(
    [this](const manifest& x) { return verify_files(path_, x); });
}

expected<metrics> checkpoint::metadata() const {
  auto file = path_ / metadata_file_name;
  auto folder = look_up(path_);
  auto found = look_up(file);
  if (!folder || !found)
    return tl::unexpected{folder ? found.error() : folder.error()};
  if (!folder->is_folder())
    return failure(ec::storage,
                   "there is no checkpoint folder " + path_.string());
  if (!found->exists())
    return metrics{};
  return read_file(file, max_metadata_bytes)
    .and_then([&](const std::string& text) {
      return json::read<metrics>(text, file.string(), json::to_metrics);
    });
}

expected<void> checkpoint::set_metadata(const metrics& x) const {
  std::string text;
  json::append(text, x);
  text += '\n';
  return replace_shared_file(path_ / metadata_file_name, text);
}

expected<void> checkpoint::update_metadata(const metrics& x) const {
  return metadata().and_then([&](metrics all) {
    for (auto& [name, value] : x)
      all[name] = value;
    return set_metadata(all);
  });
}

} // namespace troupe
