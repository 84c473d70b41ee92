#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <typeinfo>
#include <utility>

#include <cereal/archives/portable_binary.hpp>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// A value as cereal writes it, with the name of its type: bytes alone would be
/// read as any type.
struct packed_value {
  std::string type;
  std::string bytes;

  bool operator==(const packed_value&) const = default;
};

std::string readable_type(const std::type_info& type);

/// The error for a value that is read as another *type*.
error wrong_type(const packed_value& x, const std::type_info& type);
error damaged_value(const packed_value& x, const std::string& why);

template <class T>
expected<packed_value> pack(const T& x) {
  try {
    std::ostringstream out;
    cereal::PortableBinaryOutputArchive{out}(x);
    return packed_value{readable_type(typeid(T)), std::move(out).str()};
  } catch (const std::exception& problem) {
    return failure(ec::invalid_argument,
                   "a value of type " + readable_type(typeid(T))
                     + " cannot be serialized: " + problem.what());
  }
}

/// `ec::invalid_argument` for a value of another type, `ec::corrupt` for bytes
/// that are not a packed value; *to* may have changed then.
template <class T>
expected<void> unpack(const packed_value& x, T& to) {
  if (x.type != readable_type(typeid(T)))
    return tl::unexpected{wrong_type(x, typeid(T))};
  try {
    std::istringstream in{x.bytes};
    cereal::PortableBinaryInputArchive{in}(to);
    if (in.peek() != std::istringstream::traits_type::eof())
      return tl::unexpected{damaged_value(x, "it has more bytes")};
    return {};
  } catch (const std::exception& problem) {
    return tl::unexpected{damaged_value(x, problem.what())};
  }
}

/// Writes *x* to the new file *path*; throws `train_error`.
void save_packed(const fs::path& path, const expected<packed_value>& x);

/// What `save_packed` wrote; throws `train_error`.
packed_value load_packed(const fs::path& path);

} // namespace troupe::internal
