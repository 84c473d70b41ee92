#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <nlohmann/json.hpp>

#include "tests/support/peers.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

/// A Python of the peers that has imported *modules* and forks for each script:
/// MLflow alone takes 1.5 s of CPU time to import.
class warm_python {
public:
  explicit warm_python(const std::string& modules,
                       const std::map<std::string, std::string>& environment) {
    write_bytes(home_ / "server.py", "import " + modules + "\n" + server);
    std::vector<std::string> command{
      peer_program("python"), (home_ / "server.py").string(), socket_path()};
    process_ = std::make_unique<peer_process>(
      command, peer_environment(home_.path(), environment), home_ / "log");
    while (connected().get() < 0)
      if (process_->ends_within(std::chrono::milliseconds{50}))
        throw std::runtime_error{"it did not start: "
                                 + bytes_of(home_ / "log")};
  }

  /// Runs *script* in a process of its own, as `run_peer_script` does.
  peer_result run(const std::string& script,
                  const std::vector<std::string>& arguments) {
    temporary_folder folder;
    auto output = folder / "output";
    auto text = nlohmann::json{{"script", script},
                               {"arguments", arguments},
                               {"output", output.string()}}
                  .dump()
                + '\n';
    auto server = connected();
    if (::send(server.get(), text.data(), text.size(), MSG_NOSIGNAL)
        != static_cast<ssize_t>(text.size()))
      throw std::runtime_error{"it has ended: " + bytes_of(home_ / "log")};
    std::string code;
    char buffer[16];
    for (ssize_t n = 0; (n = ::read(server.get(), buffer, sizeof(buffer))) > 0;)
      code.append(buffer, static_cast<std::size_t>(n));
    return {code.empty() ? -1 : std::stoi(code), bytes_of(output)};
  }

private:
  static constexpr auto server = R"py(
import json, os, socket, sys, traceback

def run(x):
    output = os.open(x['output'], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ['script.py', *x['arguments']]
    try:
        exec(compile(x['script'], 'script.py', 'exec'), {'__name__': '__main__'})
        return 0
    except BaseException:
        traceback.print_exc()
        return 1

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    client, _ = listener.accept()
    request = client.makefile().readline()
    if not request:
        continue
    child = os.fork()
    if child == 0:
        code = run(json.loads(request))
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    client.close()
)py";

  std::string socket_path() const { return (home_ / "socket").string(); }

  unique_fd connected() const {
    unique_fd result{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    auto path = socket_path();
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    if (::connect(result.get(), reinterpret_cast<sockaddr*>(&address),
                  sizeof(address))
        != 0)
      result.reset();
    return result;
  }

  temporary_folder home_;
  std::unique_ptr<peer_process> process_;
};

} // namespace troupe::internal::test
