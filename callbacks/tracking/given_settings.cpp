#include "troupe/callbacks/tracking/given_settings.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "troupe/runtime/environment.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view separator = "://";

tl::unexpected<error> invalid_setting(const std::string& from,
                                      const char* why) {
  return failure(ec::invalid_config, from + why);
}

bool is_control(unsigned char x) {
  return x < 0x20 || x == 0x7f;
}

// *host_and_port* is what follows the user in the authority `user@host:port`.
bool has_good_port(std::string_view host_and_port) {
  auto end = host_and_port.rfind(']'); // of an IPv6 address
  auto colon = host_and_port.find(':', end == host_and_port.npos ? 0 : end);
  return colon == host_and_port.npos
         || whole_number<std::uint16_t>(host_and_port.substr(colon + 1));
}

constexpr std::size_t max_ini = 1024 * 1024;

} // namespace

std::string environment_variable(const char* name) {
  const auto* value = std::getenv(name);
  return value ? value : "";
}

std::string given_address(const std::string& option, const char* name) {
  auto in_environment = environment_variable(name);
  return option.empty() || option == without_user(in_environment)
           ? in_environment
           : option;
}

fs::path in_home(const std::string& name) {
  auto home = home_folder();
  return home ? *home / name : fs::path{};
}

expected<fs::path> given_folder(const std::string& text,
                                const std::string& from) {
  return expanded(text, from).and_then([](const fs::path& x) {
    return absolute_path(x);
  });
}

std::string scheme_of(const std::string& text) {
  auto end = text.find(separator);
  if (end == text.npos)
    return {};
  auto result = text.substr(0, end);
  for (auto x : result)
    if (!is_letter(x) && !is_digit(x) && x != '+' && x != '-' && x != '.')
      return {};
  return in_lower_case(result);
}

expected<std::string> given_server(const std::string& text,
                                   const std::string& from) {
  auto scheme = scheme_of(text);
  if (scheme != "http" && scheme != "https")
    return invalid_setting(
      from, " is not the address of a server: it must begin with "
            "http:// or https://");
  if (std::ranges::any_of(
        text, [](unsigned char x) { return is_control(x) || x == ' '; }))
    return invalid_setting(from, " has a blank or a control character");
  auto rest = text.substr(scheme.size() + separator.size());
  auto authority = rest.substr(0, rest.find_first_of("/?#"));
  auto host = authority.substr(authority.rfind('@') + 1); // npos + 1 is 0
  if (host.empty() || host.front() == ':')
    return invalid_setting(from, " names no host: it must be http://host or "
                                 "http://host:port");
  if (!has_good_port(host))
    return invalid_setting(from,
                           " has a port that is not a number up to 65535");
  while (rest.ends_with('/'))
    rest.pop_back();
  return scheme + std::string{separator} + rest;
}

expected<void> check_credential(const std::string& text,
                                const std::string& from) {
  if (std::ranges::any_of(text, is_control))
    return invalid_setting(
      from, " has a control character, perhaps a line break at its "
            "end: a credential is one line");
  return {};
}

std::map<std::string, std::string> ini_section(const fs::path& path,
                                               const std::string& section) {
  std::map<std::string, std::string> result;
  std::istringstream in{read_file(path, max_ini).value_or(std::string{})};
  auto inside = false;
  for (std::string whole; std::getline(in, whole);) {
    auto line = without_blanks(whole);
    if (line.empty() || line.front() == '#' || line.front() == ';')
      continue;
    if (line.front() == '[') {
      inside = line == "[" + section + "]";
      continue;
    }
    auto equals = line.find_first_of("=:");
    if (!inside || equals == line.npos)
      continue;
    auto name = in_lower_case(without_blanks(line.substr(0, equals)));
    result[name] = without_blanks(line.substr(equals + 1));
  }
  return result;
}

} // namespace troupe::internal
