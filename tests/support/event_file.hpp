#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <algorithm>

#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/encoding/binary.hpp"

namespace troupe::internal::test {

/// The data of each record in an event file. Throws if one is torn or damaged.
inline std::vector<std::string> event_records(const fs::path& path) {
  auto bytes = bytes_of(path);
  std::vector<std::string> result;
  auto number = [&]<class T>(std::size_t at, T) {
    T x;
    if (at + sizeof(T) > bytes.size())
      throw std::runtime_error{"a torn record"};
    std::memcpy(&x, bytes.data() + at, sizeof(T));
    return x;
  };
  for (std::size_t at = 0; at < bytes.size();) {
    auto size = number(at, std::uint64_t{});
    if (number(at + 8, std::uint32_t{})
        != masked_crc(crc32c({bytes.data() + at, 8})))
      throw std::runtime_error{"a damaged length"};
    auto checksum = number(at + 12 + size, std::uint32_t{});
    result.push_back(bytes.substr(at + 12, size));
    if (checksum != masked_crc(crc32c(result.back())))
      throw std::runtime_error{"a damaged record"};
    at += 16 + size;
  }
  return result;
}

/// Event files in the order in which readers open them.
inline std::vector<fs::path> event_files_in(const fs::path& folder) {
  std::vector<fs::path> result;
  for (const auto& x : fs::directory_iterator{folder})
    if (x.path().filename().string().find("tfevents") != std::string::npos)
      result.push_back(x.path());
  std::sort(result.begin(), result.end());
  return result;
}

/// All records of a folder except for the versions at the beginning of files.
inline std::vector<std::string> all_event_records(const fs::path& folder) {
  std::vector<std::string> result;
  for (const auto& file : event_files_in(folder))
    for (auto& record : event_records(file))
      if (record.find("brain.Event:2") == record.npos)
        result.push_back(record);
  return result;
}

} // namespace troupe::internal::test
