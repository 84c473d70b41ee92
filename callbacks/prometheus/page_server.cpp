#include "troupe/callbacks/prometheus/page_server.hpp"

#include <exception>
#include <system_error>
#include <utility>

namespace troupe::internal {

namespace {

served_answer answer_with(const page_server::page& what,
                          const served_request& asked) {
  if (asked.method != "GET" && asked.method != "HEAD") {
    auto result = plain_answer("405 Method Not Allowed");
    result.fields = "Allow: GET, HEAD\r\n";
    return result;
  }
  if (asked.path != what.path)
    return plain_answer("404 Not Found");
  served_answer result;
  result.type = what.content_type;
  result.body = what.make();
  return result;
}

} // namespace

expected<std::unique_ptr<page_server>>
page_server::start(const std::string& address, std::uint16_t port, page what) {
  http_server::options how;
  how.address = address;
  how.port = port;
  how.patience = what.patience;
  TROUPE_TRY(auto server, http_server::listen(std::move(how),
                                              [what = std::move(what)](
                                                const served_request& asked) {
                                                return answer_with(what, asked);
                                              }));
  wake_event stop;
  if (!stop)
    return system_failure(ec::conflict, "cannot serve at " + server.address());
  try {
    return std::unique_ptr<page_server>{
      new page_server{std::move(server), std::move(stop)}};
  } catch (const std::system_error& x) {
    return failure(ec::spawn,
                   std::string{"cannot start a thread to serve the page: "}
                     + x.what());
  }
}

page_server::page_server(http_server server, wake_event stop)
  : server_(std::move(server)), stop_(std::move(stop)), thread_([this] {
      try {
        run();
      } catch (const std::exception&) {
        // No memory for a connection: the server ends, the run continues.
      }
    }) {}

page_server::~page_server() {
  stop_.notify();
  thread_.join();
}

void page_server::run() {
  pollfd stop{stop_.fd(), POLLIN, 0};
  while (stop.revents == 0 && server_.serve({&stop, 1}))
    ;
}

} // namespace troupe::internal
