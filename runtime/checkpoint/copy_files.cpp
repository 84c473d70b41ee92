#include "troupe/runtime/checkpoint/copy_files.hpp"

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

expected<void> copy_file(const fs::path& from, const fs::path& to, bool move) {
  boost::system::error_code code;
  if (move && !fs::is_symlink(fs::symlink_status(from, code))) {
    fs::rename(from, to, code);
    if (!code)
      return {};
    // Another file system: copy and remove.
  }
  code.clear();
  fs::copy_file(from, to, code);
  if (code)
    return tl::unexpected{
      storage_error("copy " + from.string() + " to", to, code.value())};
  if (move)
    fs::remove(from, code);
  return {};
}

} // namespace

expected<void> copy_files(const fs::path& source, const fs::path& target,
                          bool move) {
  boost::system::error_code code;
  if (!fs::is_directory(source, code))
    return failure(ec::storage,
                   "there is no checkpoint folder " + source.string());
  for (fs::directory_iterator i{source, code}, end; !code && i != end;
       i.increment(code)) {
    auto name = i->path().filename();
    auto to = target / name;
    if (fs::is_directory(i->path(), code)) {
      fs::create_directory(to, code);
      if (code)
        return tl::unexpected{storage_error("make folder", to, code.value())};
      if (auto ok = copy_files(i->path(), to, move); !ok)
        return ok;
    } else if (name != manifest_file_name) {
      if (auto ok = copy_file(i->path(), to, move); !ok)
        return ok;
    }
  }
  if (code)
    return tl::unexpected{storage_error("list", source, code.value())};
  return {};
}

} // namespace troupe
