#pragma once

// How a training writes down what the checker compares.

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace troupe::chaos {

/// One line of JSON.
class line {
public:
  explicit line(const char* what) {
    text("what", what).number("pid", static_cast<std::uint64_t>(::getpid()));
  }

  line& text(const char* name, const std::string& value) {
    std::string quoted;
    for (unsigned char c : value) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      if (c == '"' || c == '\\' || c < 0x20)
        quoted += code;
      else
        quoted += static_cast<char>(c);
    }
    return raw(name, '"' + quoted + '"');
  }

  line& number(const char* name, std::uint64_t value) {
    return raw(name, std::to_string(value));
  }

  line& raw(const char* name, const std::string& value) {
    out_ += out_.empty() ? "{\"" : ",\"";
    out_ += std::string{name} + "\":" + value;
    return *this;
  }

  /// Appends it to *file* with one system call: a process that dies leaves
  /// complete lines. A record that cannot be written ends the process: nothing
  /// that it did afterwards could be checked.
  void to(const std::string& file) {
    out_ += "}\n";
    auto fd =
      ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    auto count = fd < 0 ? -1 : ::write(fd, out_.data(), out_.size());
    if (count != static_cast<ssize_t>(out_.size()))
      std::abort();
    ::close(fd);
  }

private:
  std::string out_;
};

inline std::string hex(std::uint64_t x) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(x));
  return text;
}

} // namespace troupe::chaos
