#include "troupe/trainers/torch/files/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using json::document;

constexpr std::size_t length_bytes = 8;

/// The limit of the format's own library.
constexpr std::uint64_t max_header = 100'000'000;

constexpr auto metadata_key = "__metadata__";

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 18> sizes{
  {{"BOOL", 1},
   {"U8", 1},
   {"I8", 1},
   {"F8_E5M2", 1},
   {"F8_E4M3", 1},
   {"F8_E8M0", 1},
   {"F8_E5M2FNUZ", 1},
   {"F8_E4M3FNUZ", 1},
   {"I16", 2},
   {"U16", 2},
   {"F16", 2},
   {"BF16", 2},
   {"I32", 4},
   {"U32", 4},
   {"F32", 4},
   {"I64", 8},
   {"U64", 8},
   {"F64", 8}}};

std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t result = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    result = result << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return result;
}

tl::unexpected<error> corrupt(std::string why) {
  return failure(ec::corrupt, std::move(why));
}

/// Parses *text*; *problem* says what the format forbids but JSON allows: a
/// name used twice, deep nesting.
document parse(std::string_view text, std::string& problem) {
  std::set<std::string> names;
  auto check = [&](int depth, document::parse_event_t event, document& value) {
    if (event == document::parse_event_t::key && depth == 1
        && !names.insert(value.get<std::string>()).second)
      problem = "the name '" + value.get<std::string>() + "' is used twice";
    // One object per tensor with one array per field.
    if (depth > 3)
      problem = "it is nested too deeply";
    return problem.empty();
  };
  return document::parse(text, check, /*allow_exceptions=*/false);
}

expected<safetensors_header::entry>
to_entry(const std::string& name, const document& x, std::uint64_t data_size) {
  auto bad = [&](const std::string& why) {
    return corrupt("tensor '" + name + "' " + why);
  };
  auto is_count = [](const document& y) {
    return y.is_number_unsigned()
           && y.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  };
  if (!x.is_object() || x.size() != 3 || !x.contains("dtype")
      || !x.contains("shape") || !x.contains("data_offsets"))
    return bad("has other fields than dtype, shape and data_offsets");
  const auto& dtype = x["dtype"];
  const auto& shape = x["shape"];
  const auto& offsets = x["data_offsets"];
  auto unit = dtype.is_string()
                ? safetensors_header::element_size(dtype.get<std::string>())
                : 0;
  if (unit == 0)
    return bad("has the unknown data type " + dtype.dump());
  if (!shape.is_array() || !std::ranges::all_of(shape, is_count))
    return bad("has a bad shape");
  if (!offsets.is_array() || offsets.size() != 2
      || !std::ranges::all_of(offsets, is_count))
    return bad("has bad offsets");
  safetensors_header::entry result{
    name, dtype.get<std::string>(), shape.get<std::vector<std::int64_t>>(),
    offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
  if (result.begin > result.end || result.end > data_size)
    return bad("lies outside of the file");
  std::uint64_t bytes = unit;
  for (auto extent : result.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent),
                               &bytes))
      return bad("has a shape that is too large");
  // An empty tensor has strides, too, which count an extent of 0 as 1.
  std::int64_t stride = 1;
  for (auto i = result.shape.size(); i-- > 1;)
    if (__builtin_mul_overflow(
          stride, std::max<std::int64_t>(result.shape[i], 1), &stride))
      return bad("has a shape that is too large");
  if (bytes != result.end - result.begin)
    return bad(concat("has ", result.end - result.begin,
                      " bytes where its shape needs ", bytes));
  return result;
}

} // namespace

std::uint64_t
safetensors_header::element_size(const std::string& dtype) noexcept {
  for (const auto& [name, size] : sizes)
    if (name == dtype)
      return size;
  return 0;
}

std::string safetensors_header::encode() const {
  auto header = document::object();
  if (!metadata.empty())
    header[metadata_key] = metadata;
  for (const auto& x : entries)
    header[x.name] = {{"dtype", x.dtype},
                      {"shape", x.shape},
                      {"data_offsets", {x.begin, x.end}}};
  auto text = header.dump();
  text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes,
              ' ');
  std::string result;
  for (std::size_t i = 0; i < length_bytes; ++i)
    result += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return result + text;
}

expected<safetensors_header>
safetensors_header::decode(std::span<const std::byte> file) {
  if (file.size() < length_bytes)
    return corrupt("it is too short for a safetensors file");
  auto length = little_endian(file);
  if (length > max_header || length > file.size() - length_bytes)
    return corrupt(
      concat("its header of ", length, " bytes does not fit into the file"));
  const auto* begin = reinterpret_cast<const char*>(file.data()) + length_bytes;
  std::string problem;
  auto header = parse({begin, length}, problem);
  if (!problem.empty())
    return corrupt("in its header " + problem);
  if (!header.is_object())
    return corrupt("its header is not a JSON object");
  safetensors_header result;
  auto data_size = file.size() - length_bytes - length;
  for (const auto& [name, value] : header.items()) {
    if (name == metadata_key) {
      if (!value.is_object()
          || !std::ranges::all_of(value, [](auto& x) { return x.is_string(); }))
        return corrupt("its metadata is not a map from text to text");
      result.metadata = value.get<std::map<std::string, std::string>>();
      continue;
    }
    TROUPE_TRY(auto x, to_entry(name, value, data_size));
    result.entries.push_back(std::move(x));
  }
  std::ranges::sort(result.entries, {}, [](const entry& x) {
    return std::tuple{x.begin, x.end, std::string_view{x.name}};
  });
  std::uint64_t covered = 0;
  for (const auto& x : result.entries) {
    if (x.begin != covered)
      return corrupt("tensor '" + x.name + "' "
                     + (x.begin < covered ? "overlaps another one"
                                          : "leaves a gap before it"));
    covered = x.end;
  }
  if (covered != data_size)
    return corrupt(concat("it has ", data_size - covered,
                          " bytes that belong to no tensor"));
  return result;
}

std::uint64_t
safetensors_header::data_offset(std::span<const std::byte> file) noexcept {
  return length_bytes + little_endian(file);
}

} // namespace troupe::internal
