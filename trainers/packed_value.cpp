#include "troupe/trainers/packed_value.hpp"

#include <cerrno>
#include <string_view>

#include <boost/core/demangle.hpp>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/train_error.hpp"

namespace troupe::internal {

namespace {

/// The first line of a file with a value; the second one is its type.
constexpr std::string_view first_line = "troupe value 1\n";

constexpr std::size_t max_file_bytes = std::size_t{1} << 36;

} // namespace

std::string readable_type(const std::type_info& type) {
  return boost::core::demangle(type.name());
}

error wrong_type(const packed_value& x, const std::type_info& type) {
  return {ec::invalid_argument,
          "it is a value of type " + x.type + ", not " + readable_type(type)};
}

error damaged_value(const packed_value& x, const std::string& why) {
  return {ec::corrupt,
          concat("its ", x.bytes.size(), " bytes are not a value of type ",
                 x.type, ": ", why)};
}

void save_packed(const fs::path& path, const expected<packed_value>& x) {
  if (!x)
    throw train_error{
      {x.error().code, path.string() + ": " + x.error().message}};
  if (value_or_throw(look_up_link(path)).exists())
    throw train_error{
      {ec::invalid_argument, path.string() + " exists already"}};
  errno = 0;
  fs::ofstream out{path, std::ios::binary};
  out << first_line << x->type << '\n' << x->bytes;
  out.close();
  if (!out)
    throw train_error{storage_error("write", path, errno)};
}

packed_value load_packed(const fs::path& path) {
  auto text = value_or_throw(read_file(path, max_file_bytes));
  auto end = text.find('\n', first_line.size());
  if (!text.starts_with(first_line) || end == text.npos)
    throw train_error{
      {ec::corrupt, path.string() + " does not hold a value that was saved"}};
  return {text.substr(first_line.size(), end - first_line.size()),
          text.substr(end + 1)};
}

} // namespace troupe::internal
