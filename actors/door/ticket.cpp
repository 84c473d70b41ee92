#include "troupe/actors/door/ticket.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view first_line = "troupe-ticket 1";
/// How tickets of any version begin.
constexpr std::string_view first_word = "troupe-ticket ";
constexpr std::string_view last_line = "end";

/// The longest name in DNS.
constexpr std::size_t max_address_size = 253;

void append_base64(std::string& out, std::string_view bytes) {
  auto begin = out.size();
  out.resize(begin + (bytes.size() + 2) / 3 * 4 + 1); // EVP adds a 0.
  auto size =
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data() + begin),
                    reinterpret_cast<const unsigned char*>(bytes.data()),
                    static_cast<int>(bytes.size()));
  out.resize(begin + static_cast<std::size_t>(size));
}

std::size_t base64_size(std::string_view bytes) {
  return (bytes.size() + 2) / 3 * 4 + 1;
}

/// The bytes of *text*; nothing unless it is their only spelling.
std::optional<secret_bytes> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0)
    return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  auto size =
    EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                    reinterpret_cast<const unsigned char*>(text.data()),
                    static_cast<int>(text.size()));
  // It counts the padding as bytes.
  auto padding =
    static_cast<std::size_t>(text.ends_with("==")) + text.ends_with('=');
  if (size < 0 || static_cast<std::size_t>(size) != bytes.size()) {
    secret_bytes::wipe(bytes);
    return std::nullopt;
  }
  bytes.resize(bytes.size() - padding);
  secret_bytes result{std::move(bytes)};
  std::string again;
  again.reserve(text.size() + 1);
  append_base64(again, result.view());
  auto is_same = again == text;
  secret_bytes::wipe(again);
  if (!is_same)
    return std::nullopt;
  return result;
}

/// Numbers of IPv4 and IPv6, with a zone, or a host's name.
bool is_address(std::string_view x) {
  auto fits = [](char c) {
    return is_letter(c) || is_digit(c)
           || std::string_view{"-._:%"}.find(c) != std::string_view::npos;
  };
  return !x.empty() && x.size() <= max_address_size
         && std::ranges::all_of(x, fits);
}

tl::unexpected<error> no_ticket(std::string_view why) {
  return failure(ec::corrupt, concat("this is not a ticket of a run: ", why));
}

/// Takes a ticket's text apart, line by line. No error shows a value: it may be
/// a part of the key.
class ticket_lines {
public:
  explicit ticket_lines(std::string_view text) : rest_(text) {}

  /// The next line.
  expected<std::string_view> next() {
    ++number_;
    auto end = rest_.find('\n');
    if (end == rest_.npos)
      return no_ticket(concat("it is cut off in line ", number_));
    auto line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  /// The value of the next line, which is "<name> <value>".
  expected<std::string_view> value(std::string_view name) {
    TROUPE_TRY(auto line, next());
    if (!line.starts_with(name) || line.substr(name.size(), 1) != " ")
      return no_ticket(
        concat("line ", number_, " is not '", name, " <value>'"));
    return line.substr(name.size() + 1);
  }

  /// The same, decoded.
  expected<secret_bytes> bytes(std::string_view name) {
    TROUPE_TRY(auto text, value(name));
    auto result = from_base64(text);
    if (!result)
      return no_ticket(concat("its ", name, " is damaged"));
    return std::move(*result);
  }

  bool next_is(std::string_view name) const {
    return rest_.starts_with(concat(name, ' '));
  }

  bool at_end() const noexcept { return rest_.empty(); }

private:
  std::string_view rest_;
  int number_ = 0;
};

/// Whether *text*, the whole input so far, ends with a ticket's last line.
bool is_whole(std::string_view text) {
  return text.ends_with("\nend\n");
}

} // namespace

secret_bytes encode(const ticket& x) {
  auto& key = x.own.key;
  std::string out;
  // Room for all of it, so that no copy of the key is left behind.
  out.reserve(max_ticket_size + base64_size(x.own.authority)
              + base64_size(x.own.certificate) + base64_size(key.view()));
  out += concat(first_line, "\nrun ", x.run, "\nport ", x.port, '\n');
  for (const auto& address : x.addresses)
    out += concat("address ", address, '\n');
  auto put = [&out](std::string_view name, std::string_view bytes) {
    out += name;
    append_base64(out, bytes);
    out += '\n';
  };
  put("authority ", x.own.authority);
  put("certificate ", x.own.certificate);
  put("key ", key.view());
  out += concat(last_line, '\n');
  return secret_bytes{std::move(out)};
}

expected<ticket> parse_ticket(std::string_view text, host_role role) {
  if (text.empty())
    return no_ticket("it is empty");
  if (text.size() > max_ticket_size)
    return no_ticket(concat("it has more than ", max_ticket_size, " bytes"));
  ticket_lines lines{text};
  TROUPE_TRY(auto first, lines.next());
  if (first != first_line)
    return no_ticket(concat("its first line is not '", first_line, "'"));
  ticket result;
  TROUPE_TRY(auto run, lines.value("run"));
  TROUPE_TRY_VOID(check_run_name(run));
  result.run = run;
  TROUPE_TRY(auto port, lines.value("port"));
  result.port = whole_number<std::uint16_t>(port).value_or(0);
  if (result.port == 0 || concat(result.port) != port)
    return no_ticket("its port is not a number from 1 to 65535");
  do {
    TROUPE_TRY(auto address, lines.value("address"));
    if (!is_address(address))
      return no_ticket("one of its addresses is neither numbers nor a name");
    result.addresses.emplace_back(address);
  } while (lines.next_is("address"));
  if (result.addresses.size() > max_ticket_addresses)
    return no_ticket(
      concat("it has more than ", max_ticket_addresses, " addresses"));
  TROUPE_TRY(auto authority, lines.bytes("authority"));
  TROUPE_TRY(auto certificate, lines.bytes("certificate"));
  TROUPE_TRY(result.own.key, lines.bytes("key"));
  result.own.authority = authority.view();
  result.own.certificate = certificate.view();
  TROUPE_TRY(auto last, lines.next());
  if (last != last_line)
    return no_ticket("its last line is not 'end'");
  if (!lines.at_end())
    return no_ticket("it is followed by something else");
  if (auto checked =
        check_credentials(result.own, certificate_name(role, result.run));
      !checked)
    return no_ticket(checked.error().message);
  return result;
}

expected<secret_bytes> read_ticket_text(int fd, std::chrono::milliseconds limit,
                                        int stop) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  std::string text;
  text.reserve(max_ticket_size + 1); // A copy of the key would stay otherwise.
  for (;;) {
    // In this order: what is to stop may watch *fd*, too.
    pollfd waits[] = {{stop, POLLIN, 0}, {fd, POLLIN, 0}};
    auto waited = wait_until_ready(waits, deadline);
    if (waits[0].revents != 0 && waits[1].revents == 0) {
      secret_bytes::wipe(text);
      return failure(ec::stopped, "it was to end before its ticket came");
    }
    if (waited == wait_outcome::late) {
      secret_bytes::wipe(text);
      return failure(ec::timeout,
                     "no whole ticket came within " + duration_text(limit));
    }
    auto before = text.size();
    text.resize(max_ticket_size + 1);
    auto n = waited == wait_outcome::failed
               ? -1
               : ::read(fd, text.data() + before, text.size() - before);
    auto problem = errno;
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && is_temporary(problem))
      continue;
    if (n < 0) {
      secret_bytes::wipe(text);
      return system_failure(ec::corrupt, "the ticket cannot be read", problem);
    }
    if (n == 0 || is_whole(text) || text.size() > max_ticket_size)
      break;
  }
  return secret_bytes{std::move(text)};
}

expected<ticket> read_ticket(int fd, std::chrono::milliseconds limit,
                             host_role role) {
  TROUPE_TRY(auto text, read_ticket_text(fd, limit));
  return parse_ticket(text.view(), role);
}

expected<ticket> read_ticket_file(const fs::path& path, host_role role) {
  auto what = "the ticket " + path.string();
  // Not waiting for a pipe that no one writes to.
  unique_fd file{uninterrupted(
    [&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); })};
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0)
    return system_failure(
      errno == ENOENT || may_pass(errno) ? ec::storage : ec::invalid_config,
      what);
  if (!S_ISREG(found.st_mode))
    return failure(ec::invalid_config, what + " is not a file");
  auto is_of_root = found.st_uid == 0;
  if (!is_of_root && found.st_uid != ::geteuid())
    return failure(ec::invalid_config, what + " belongs to another user");
  auto mode = found.st_mode & 07777;
  if (mode != 0600 && mode != 0400 && (!is_of_root || (mode & ~0640U) != 0))
    return failure(ec::invalid_config,
                   what + " is open to other users: its mode must be 0600");
  // A file answers at once, or its disk does not: no limit would help.
  auto result = read_ticket(file.get(), std::chrono::seconds{10}, role);
  if (!result)
    return failure(result.error().code, what + ": " + result.error().message);
  return result;
}

expected<bool> is_place_for_ticket(const fs::path& path) {
  TROUPE_TRY(auto found, look_up_link(path));
  if (!found.exists())
    return true;
  if (!found.is_file())
    return false;
  auto file = open_file(path, O_RDONLY, "read");
  if (!file) {
    // Its run may have removed it meanwhile.
    TROUPE_TRY(auto still, look_up_link(path));
    if (!still.exists())
      return true;
    return tl::unexpected{std::move(file.error())};
  }
  TROUPE_TRY(auto begin, read_range(*file, path, 0, first_word.size()));
  return begin.empty() || begin == first_word;
}

expected<std::vector<std::string>> host_addresses() {
  TROUPE_TRY(auto all, own_addresses());
  std::vector<std::string> result;
  for (bool loopback : {false, true}) {
    for (auto& x : all)
      if (x.is_loopback == loopback)
        result.push_back(x.address);
    if (!result.empty())
      break;
  }
  if (result.size() > max_ticket_addresses)
    result.resize(max_ticket_addresses);
  return result;
}

} // namespace troupe::internal
