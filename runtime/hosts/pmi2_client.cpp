#include "troupe/runtime/hosts/pmi2_client.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Bytes of a value in one part; twice as many digits are sent.
constexpr std::size_t part_size = 500;

/// The length before a message: a decimal number with spaces.
constexpr std::size_t length_size = 6;

constexpr std::size_t max_greeting = 1024;

constexpr std::string_view greeting =
  "cmd=init pmi_version=2 pmi_subversion=0\n";

tl::unexpected<error> broken(std::string_view what) {
  return failure(ec::protocol, concat("PMI-2: ", what));
}

std::optional<int> number_from(std::string_view text) {
  int result = 0;
  auto end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, result);
  if (read.ec != std::errc{} || read.ptr != end || result < 0)
    return std::nullopt;
  return result;
}

std::string_view variable(const environment_map& variables,
                          std::string_view name) {
  auto i = variables.find(name);
  return i == variables.end() ? std::string_view{}
                              : std::string_view{i->second};
}

/// A number that must be there.
expected<int> number_in(const environment_map& variables,
                        std::string_view name) {
  auto text = variable(variables, name);
  if (auto number = number_from(text))
    return *number;
  return broken(concat(name, '=', cut_text(text, 100), " is not a number"));
}

bool is_key(std::string_view text) {
  return !text.empty() && text.size() <= pmi2_client::max_key
         && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789.-_")
              == text.npos;
}

std::optional<std::string> bytes_from_hex(std::string_view text) {
  std::string result;
  for (; text.size() >= 2; text.remove_prefix(2)) {
    unsigned byte = 0;
    auto end = text.data() + 2;
    auto read = std::from_chars(text.data(), end, byte, 16);
    if (read.ec != std::errc{} || read.ptr != end)
      return std::nullopt;
    result += static_cast<char>(byte);
  }
  if (!text.empty())
    return std::nullopt;
  return result;
}

/// Reads "name=value;name=value;"; a doubled semicolon is part of a value.
std::map<std::string, std::string, std::less<>>
fields_of(std::string_view text) {
  std::map<std::string, std::string, std::less<>> result;
  while (!text.empty()) {
    std::string field;
    std::size_t at = 0;
    for (; at < text.size(); ++at) {
      if (text[at] != ';')
        field += text[at];
      else if (text.substr(at).starts_with(";;"))
        field += text[at++];
      else
        break;
    }
    text.remove_prefix(std::min(at + 1, text.size()));
    auto equals = std::min(field.find('='), field.size());
    result[field.substr(0, equals)] =
      field.substr(std::min(equals + 1, field.size()));
  }
  return result;
}

} // namespace

expected<pmi2_client> pmi2_client::connect(const environment_map& variables,
                                           duration limit) {
  if (variable(variables, "PMI_FD").empty())
    return failure(ec::unsupported,
                   "PMI_FD is not set: this is not a task of srun --mpi=pmi2");
  TROUPE_TRY(auto fd, number_in(variables, "PMI_FD"));
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0
      || type != SOCK_STREAM)
    return broken(concat("PMI_FD=", fd, " is not a stream socket"));
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  pmi2_client result{unique_fd{fd}};
  auto until = std::chrono::steady_clock::now() + limit;
  TROUPE_TRY_VOID(result.introduce(variables, until));
  return result;
}

expected<void> pmi2_client::introduce(const environment_map& variables,
                                      time_point until) {
  TROUPE_TRY(rank_, number_in(variables, "PMI_RANK"));
  TROUPE_TRY(size_, number_in(variables, "PMI_SIZE"));
  job_ = variable(variables, "PMI_JOBID");
  // The first exchange is of PMI-1: a line each way.
  TROUPE_TRY_VOID(send(greeting, until));
  std::string line;
  while (!line.ends_with('\n')) {
    TROUPE_TRY(auto byte, receive(1, until));
    line += byte;
    if (line.size() > max_greeting)
      return broken("the answer to the greeting has no end");
  }
  if (!line.starts_with("cmd=response_to_init ")
      || line.find(" pmi_version=2 ") == line.npos
      || line.find(" rc=0") == line.npos)
    return broken(
      concat("the greeting was answered by ", cut_text(line, line.size() - 1)));
  auto body = concat("pmijobid=", job_, ";pmirank=", rank_, ";threaded=FALSE;");
  TROUPE_TRY_VOID(call("fullinit", std::move(body), until));
  return {};
}

expected<void> pmi2_client::put(std::string_view key, std::string_view value,
                                duration limit) {
  if (!is_key(key) || value.size() > max_value)
    return failure(ec::invalid_argument,
                   concat("PMI-2 cannot store the key ", cut_text(key, 100),
                          " with a value of ", value.size(), " bytes"));
  auto until = std::chrono::steady_clock::now() + limit;
  auto parts = (value.size() + part_size - 1) / part_size;
  for (std::size_t i = 0; i < parts; ++i) {
    std::string text;
    append_hex(text, value.substr(i * part_size, part_size));
    TROUPE_TRY_VOID(put_text(concat(key, '.', i), text, until));
  }
  return put_text(key, concat(parts), until);
}

expected<void> pmi2_client::fence(duration limit) {
  auto until = std::chrono::steady_clock::now() + limit;
  return call("kvs-fence", {}, until).map([](const fields&) {});
}

expected<std::string> pmi2_client::get(std::string_view key, duration limit) {
  if (!is_key(key))
    return failure(ec::invalid_argument,
                   concat("PMI-2 has no key ", cut_text(key, 100)));
  auto until = std::chrono::steady_clock::now() + limit;
  TROUPE_TRY(auto count, get_text(key, until));
  auto parts = number_from(count);
  if (!parts || *parts > static_cast<int>(max_value / part_size) + 1)
    return broken(concat("the value of ", key, " was not stored by Troupe"));
  std::string result;
  for (int i = 0; i < *parts; ++i) {
    TROUPE_TRY(auto text, get_text(concat(key, '.', i), until));
    auto bytes = bytes_from_hex(text);
    if (!bytes)
      return broken(concat("the value of ", key, " is not of digits"));
    result += *bytes;
  }
  return result;
}

expected<void> pmi2_client::finalize(duration limit) {
  auto until = std::chrono::steady_clock::now() + limit;
  return call("finalize", {}, until).map([](const fields&) {});
}

expected<pmi2_client::fields> pmi2_client::call(std::string_view command,
                                                std::string body,
                                                time_point until) {
  auto message = concat("cmd=", command, ';', body);
  auto length = concat(message.size());
  if (length.size() > length_size)
    return broken("the message is too long");
  length.insert(0, length_size - length.size(), ' ');
  TROUPE_TRY_VOID(send(length + message, until));
  TROUPE_TRY(auto head, receive(length_size, until));
  // Slurm aligns it to the left.
  auto begin = std::min(head.find_first_not_of(' '), head.size());
  auto end = std::max(head.find_last_not_of(' ') + 1, begin);
  auto size = number_from({head.data() + begin, head.data() + end});
  if (!size)
    return broken("an answer has no length");
  TROUPE_TRY(auto text, receive(static_cast<std::size_t>(*size), until));
  auto result = fields_of(text);
  if (result["cmd"] != concat(command, "-response"))
    return broken(concat(command, " was answered by ", cut_text(text, 200)));
  if (result["rc"] != "0")
    return broken(concat(command, " failed with code ",
                         cut_text(result["rc"], 100), ": ",
                         cut_text(result["errmsg"], 200)));
  return result;
}

expected<void> pmi2_client::put_text(std::string_view key,
                                     std::string_view text, time_point until) {
  auto body = concat("key=", key, ";value=", text, ';');
  TROUPE_TRY_VOID(call("kvs-put", std::move(body), until));
  return {};
}

expected<std::string> pmi2_client::get_text(std::string_view key,
                                            time_point until) {
  auto body = concat("jobid=", job_, ";srcid=-1;key=", key, ';');
  TROUPE_TRY(auto answer, call("kvs-get", std::move(body), until));
  if (answer["found"] != "TRUE")
    return failure(ec::invalid_argument, concat("PMI-2 has no key ", key));
  return std::move(answer["value"]);
}

expected<void> pmi2_client::send(std::string_view bytes, time_point until) {
  while (!bytes.empty()) {
    auto n = uninterrupted([&] {
      return ::send(socket_.get(), bytes.data(), bytes.size(),
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    });
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      TROUPE_TRY_VOID(wait(POLLOUT, until));
    } else {
      return system_failure(ec::protocol, "PMI-2: the server is gone");
    }
  }
  return {};
}

expected<std::string> pmi2_client::receive(std::size_t size, time_point until) {
  std::string result(size, '\0');
  for (std::size_t at = 0; at < size;) {
    auto n = uninterrupted([&] {
      return ::recv(socket_.get(), result.data() + at, size - at, MSG_DONTWAIT);
    });
    if (n > 0) {
      at += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      TROUPE_TRY_VOID(wait(POLLIN, until));
    } else {
      return n == 0 ? broken("the server is gone")
                    : system_failure(ec::protocol, "PMI-2: the server is gone");
    }
  }
  return result;
}

expected<void> pmi2_client::wait(short events, time_point until) const {
  auto left =
    std::chrono::ceil<duration>(until - std::chrono::steady_clock::now());
  if (left.count() <= 0)
    return failure(ec::timeout, "PMI-2: the server, or another task, did not "
                                "answer in time");
  // Too long a wait is only continued by the next call.
  pollfd waits{socket_.get(), events, 0};
  ::poll(&waits, 1,
         static_cast<int>(std::min<duration::rep>(left.count(), 60'000)));
  return {};
}

} // namespace troupe::internal
