#include "troupe/runtime/journal/line_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

// Small, as many short-lived threads read journals: the allocator keeps what
// each of its arenas ever held.
constexpr std::size_t read_size = 64 * 1024;

} // namespace

expected<line_reader> line_reader::open(const fs::path& path,
                                        std::uint64_t offset) {
  return open_file(path, O_RDONLY, "open").map([&](unique_fd file) {
    return line_reader{std::move(file), path, offset};
  });
}

expected<std::optional<std::string_view>> line_reader::next() {
  auto searched = begin_;
  for (;;) {
    auto end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      auto line = std::string_view{buffer_}.substr(begin_, end + 1 - begin_);
      begin_ = end + 1;
      offset_ += line.size();
      return std::optional{line};
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    auto more = fill();
    if (!more)
      return tl::unexpected{more.error()};
    if (!*more)
      return std::optional<std::string_view>{};
  }
}

expected<bool> line_reader::fill() {
  auto old_size = buffer_.size();
  buffer_.resize(old_size + read_size);
  ssize_t count;
  do {
    count = ::pread(file_.get(), buffer_.data() + old_size, read_size,
                    static_cast<off_t>(offset_ + old_size));
  } while (count < 0 && errno == EINTR);
  auto code = errno;
  buffer_.resize(old_size + static_cast<std::size_t>(count > 0 ? count : 0));
  if (count < 0)
    return tl::unexpected{storage_error("read", path_, code)};
  return count > 0;
}

} // namespace troupe
