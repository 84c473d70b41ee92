#include "troupe/runtime/hosts/host_list.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view word_ends = " \t\r";

/// Takes the first word of *line*.
std::string_view take_word(std::string_view& line) noexcept {
  line = without_blanks(line);
  auto word = line.substr(0, line.find_first_of(word_ends));
  line.remove_prefix(word.size());
  return word;
}

/// The host of a line that is not empty.
expected<host_entry> host_of_line(std::string_view line) {
  host_entry result;
  std::string_view name = take_word(line);
  if (name.starts_with('[') && name.ends_with(']')
      && name.find(':') != name.npos)
    name = name.substr(1, name.size() - 2);
  if (!is_host_name(name))
    return failure(ec::invalid_config, no_host_text(name));
  result.name = name;
  for (auto word = take_word(line); !word.empty(); word = take_word(line)) {
    if (result.slots || !word.starts_with("slots="))
      return failure(ec::invalid_config,
                     concat("\"", cut_text(word, 100),
                            "\": after the host, only slots=N may follow"));
    auto number = word.substr(word.find('=') + 1);
    auto slots = whole_number<int>(number);
    if (!slots || *slots < 1)
      return failure(
        ec::invalid_config,
        concat("\"", cut_text(word, 100), "\": slots are a number from 1 on"));
    result.slots = slots;
  }
  return result;
}

/// Adds the slots of another line about the same host.
expected<void> merge(host_entry& host, const host_entry& other) {
  auto sum = std::int64_t{host.slots.value_or(1)} + other.slots.value_or(1);
  if (sum > INT32_MAX)
    return failure(ec::invalid_config,
                   concat("host ", host.name, " has too many slots"));
  host.slots = static_cast<int>(sum);
  return {};
}

expected<std::string> bytes_of_hosts_file(const std::string& path) {
  unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file)
    return system_failure(ec::storage, "cannot open the hosts file " + path);
  std::string result;
  std::array<char, 16384> bytes;
  for (;;) {
    auto n = uninterrupted(
      [&] { return ::read(file.get(), bytes.data(), bytes.size()); });
    if (n < 0)
      return system_failure(ec::storage, "cannot read the hosts file " + path);
    if (n == 0)
      return result;
    result.append(bytes.data(), static_cast<std::size_t>(n));
    if (result.size() > max_hosts_file)
      return failure(ec::invalid_config,
                     concat("the hosts file ", path, " has more than ",
                            max_hosts_file, " bytes"));
  }
}

} // namespace

expected<std::vector<host_entry>> parse_hosts_file(std::string_view text,
                                                   std::string_view path) {
  std::vector<host_entry> result;
  std::map<std::string, std::size_t, std::less<>> known;
  for (std::size_t number = 1; !text.empty(); ++number) {
    auto size = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, size);
    text.remove_prefix(std::min(size + 1, text.size()));
    line = without_blanks(line.substr(0, line.find('#')));
    if (line.empty())
      continue;
    auto in_line = [&](const error& x) {
      return failure(x.code, concat(path, ':', number, ": ", x.message));
    };
    auto host = host_of_line(line);
    if (!host)
      return in_line(host.error());
    auto [at, added] = known.try_emplace(host->name, result.size());
    if (!added) {
      if (auto merged = merge(result[at->second], *host); !merged)
        return in_line(merged.error());
    } else if (result.size() == max_hosts) {
      return in_line({ec::invalid_config,
                      concat("these are more than ", max_hosts, " hosts")});
    } else {
      result.push_back(std::move(*host));
    }
  }
  if (result.empty())
    return failure(ec::invalid_config, concat(path, ": no host is named"));
  return result;
}

expected<std::vector<host_entry>> hosts_of(const std::string& value,
                                           std::string_view what) {
  if (value.find('/') != value.npos) {
    TROUPE_TRY(auto text, bytes_of_hosts_file(value));
    return parse_hosts_file(text, value);
  }
  TROUPE_TRY(auto names, expand_host_list(value, what));
  auto file = look_up(value);
  if (names.front() == value && file && file->is_file())
    return failure(ec::invalid_config,
                   concat(what, " \"", value,
                          "\": this folder has a file of that name: write ./",
                          value,
                          " for the hosts that it names, or start in another "
                          "folder if a host is called so"));
  std::vector<host_entry> result;
  for (auto& name : names)
    result.push_back({std::move(name), std::nullopt});
  return result;
}

} // namespace troupe::internal
