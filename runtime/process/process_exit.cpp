#include "troupe/runtime/process/process_exit.hpp"

#include <cxxabi.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <typeinfo>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

process_exit process_exit_of(int wait_status, std::string termination_message) {
  if (WIFSIGNALED(wait_status))
    return {process_exit::kind::signaled, WTERMSIG(wait_status),
            std::move(termination_message)};
  return {process_exit::kind::exited, WEXITSTATUS(wait_status),
          std::move(termination_message)};
}

std::string to_string(const process_exit& x) {
  if (!x.termination_message.empty())
    return x.termination_message;
  switch (x.how) {
    case process_exit::kind::exited:
      return concat("exited with code ", x.code);
    case process_exit::kind::signaled: {
      auto result = concat("killed by signal ", x.code);
      if (auto* name = ::sigabbrev_np(x.code))
        result += std::string{" (SIG"} + name + ")";
      return result;
    }
    case process_exit::kind::lost:
      break;
  }
  return "ended with its spawner";
}

namespace {

std::atomic<int> message_fd{-1};
/// The process that may write the termination message. Processes that it forks
/// share the file and must not.
std::atomic<pid_t> message_owner{0};
std::terminate_handler terminate_before = nullptr;

std::string current_exception_text() {
  auto* type = abi::__cxa_current_exception_type();
  if (!type)
    return "ended by std::terminate without an exception";
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> readable{
    abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free};
  std::string name = readable ? readable.get() : type->name();
  std::string text = "ended by an exception in a thread: ";
  try {
    throw;
  } catch (const std::exception& x) {
    text += std::string{x.what()} + " (" + name + ")";
  } catch (...) {
    text += "a value of type " + name;
  }
  return text;
}

// The default handler writes the whole text to the log. abort keeps its core
// dump and its signal.
[[noreturn]] void on_terminate() noexcept {
  write_termination_message(current_exception_text());
  if (terminate_before)
    terminate_before();
  std::abort();
}

} // namespace

void keep_termination_message_in(int fd) {
  message_owner = ::getpid();
  message_fd = fd;
  auto before = std::set_terminate(on_terminate);
  if (before != on_terminate)
    terminate_before = before;
}

void write_termination_message(std::string_view text) noexcept {
  if (::getpid() != message_owner)
    return;
  int fd = message_fd.exchange(-1);
  if (fd < 0)
    return;
  text = text.substr(0, max_termination_message);
  // A memory file takes this much at once, or there is no memory at all.
  [[maybe_unused]] auto written = ::pwrite(fd, text.data(), text.size(), 0);
}

std::string read_termination_message(int fd) {
  std::string text(max_termination_message, '\0');
  auto n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

} // namespace troupe::internal
