#include "troupe/runtime/checkpoint/staging.hpp"

#include <charconv>
#include <string_view>

#include "troupe/runtime/storage/checksum.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_list_bytes = std::size_t{1} << 30;
constexpr std::size_t max_message_bytes = 512 * 1024;

// Takes a number and the space or line end behind it off *text*.
bool take(std::string_view& text, std::uint64_t& number, int base = 10) {
  auto [end, code] =
    std::from_chars(text.data(), text.data() + text.size(), number, base);
  auto size = static_cast<std::size_t>(end - text.data());
  if (code != std::errc{} || size == text.size())
    return false;
  text.remove_prefix(size + 1);
  return true;
}

bool take(std::string_view& text, file_entry& x) {
  std::uint64_t length = 0;
  if (!take(text, x.size) || !take(text, x.checksum, 16) || !take(text, length)
      || length >= text.size())
    return false;
  x.path = text.substr(0, length);
  text.remove_prefix(length + 1);
  return true;
}

} // namespace

bool is_long_list(const std::vector<file_entry>& files) {
  std::size_t bytes = 0;
  for (auto& x : files)
    bytes += x.path.size() + 2 * sizeof(std::uint64_t) + 4;
  return bytes > max_message_bytes;
}

// One entry is "<size> <checksum> <length of the path> <path>" and a line end;
// a path may hold any byte. The last line is the checksum of all before it.
expected<void> write_file_list(const held_folder& folder,
                               const std::string& name,
                               const std::vector<file_entry>& files) {
  std::string out;
  for (auto& x : files) {
    out += std::to_string(x.size) + ' ' + checksum_text(x.checksum) + ' '
           + std::to_string(x.path.size()) + ' ';
    out += x.path;
    out += '\n';
  }
  out += checksum_text(checksum(out)) + '\n';
  return check_size(folder.path() / name, out, max_list_bytes).and_then([&] {
    return folder.write_new_file(name, out);
  });
}

expected<std::vector<file_entry>> read_file_list(const held_folder& folder,
                                                 const std::string& name,
                                                 std::uint64_t count) {
  auto bytes = folder.read_file(name, max_list_bytes);
  if (!bytes)
    return tl::unexpected{bytes.error()};
  constexpr std::size_t sum_line = 17;
  auto text = std::string_view{*bytes};
  auto body = text.substr(0, text.size() - std::min(text.size(), sum_line));
  auto is_whole =
    text.substr(body.size()) == checksum_text(checksum(body)) + '\n';
  std::vector<file_entry> result;
  while (is_whole && !body.empty())
    is_whole = take(body, result.emplace_back());
  if (!is_whole || result.size() != count)
    return failure(ec::corrupt,
                   (folder.path() / name).string() + " is not the list of "
                     + std::to_string(count) + " files that its rank wrote");
  return result;
}

} // namespace troupe
