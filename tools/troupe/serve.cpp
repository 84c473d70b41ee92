#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "tools/troupe/live_storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/http/http_server.hpp"
#include "troupe/callbacks/report_page/document_news.hpp"
#include "troupe/callbacks/report_page/html_page.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

// troupe serve: the runs and sweeps of a storage folder in a browser, live.

namespace troupe::tool {

using namespace internal;

namespace {

using clock = http_server::clock;

/// Changes within this time are shown at once.
constexpr std::chrono::milliseconds shortest_pause{200};

/// The share of the time that may be spent on a page, as one of so many.
constexpr int rendering_share = 5;

struct serve_arguments {
  std::string folder; ///< Of runs, or a sweep.
  std::string storage;
  std::uint16_t port = 0;
  bool json = false;
};

/// SIGINT, SIGTERM and SIGHUP, to be read; what is ignored stays so.
expected<unique_fd> ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (auto signal : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  unique_fd result{::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (!result)
    return system_failure(ec::storage, "cannot wait for signals");
  return result;
}

/// One event of a stream; *data* is one line.
std::string event_of(std::string_view kind, std::string_view data) {
  return concat("event: ", kind, "\ndata: ", data, "\n\n");
}

/// What clients ask for, and what is sent to those that watch.
class run_server {
public:
  run_server(live_storage runs, std::string token)
    : runs_(std::move(runs)), token_(std::move(token)) {}

  served_answer answer(const served_request& x) {
    auto result = choose(x);
    result.fields += "Cache-Control: no-store\r\n"
                     "X-Content-Type-Options: nosniff\r\n"
                     "Referrer-Policy: no-referrer\r\n"
                     "Cross-Origin-Resource-Policy: same-origin\r\n"
                     "Content-Security-Policy: frame-ancestors 'none'\r\n";
    return result;
  }

  /// Serves until a signal comes, or the folder goes. Reads nothing while no
  /// one watches.
  expected<void> run(http_server& server, const unique_fd& signals) {
    for (;;) {
      std::vector<pollfd> waits{{signals.get(), POLLIN, 0},
                                {runs_.own_changes().get(), POLLIN, 0}};
      auto until = clock::time_point::max();
      if (server.has_streams()) {
        until = send_news(server);
        if (!runs_.is_announced())
          until = std::min(until, next_look_elsewhere_);
        // Further changes within the pause are one.
        if (clock::now() < next_look_)
          until = std::min(until, next_look_);
        else
          runs_.add_waits(waits);
      }
      TROUPE_TRY_VOID(server.serve(waits, until));
      if (waits[0].revents != 0)
        return {};
      if (waits[1].revents != 0)
        TROUPE_TRY_VOID(runs_.look_at_itself());
      if (server.has_streams() && !runs_.is_announced()
          && clock::now() >= next_look_elsewhere_) {
        auto begin = clock::now();
        TROUPE_TRY_VOID(runs_.look_elsewhere());
        auto end = clock::now();
        next_look_elsewhere_ =
          end
          + std::max<clock::duration>(elsewhere_interval,
                                      (end - begin) * (rendering_share - 1));
      }
      if (server.has_streams() && clock::now() >= next_look_) {
        TROUPE_TRY_VOID(runs_.look());
        auto is_news = [](const pollfd& x) { return x.revents != 0; };
        if (std::ranges::any_of(waits, is_news))
          next_look_ = clock::now() + shortest_pause / 2;
      }
    }
  }

private:
  /// A document, and how the page draws it.
  struct drawing {
    std::string kind;
    std::string text;

    bool operator==(const drawing&) const = default;
  };

  /// What a client has.
  struct received {
    std::uint64_t version = 0; ///< `topic::text_version`; 0: nothing yet.
    std::string kind;
    std::optional<sent_document> document;
    std::string topic;
  };

  /// What was made last of a topic: the list (no name), a run, a sweep, or
  /// several runs side by side (a line each).
  struct topic {
    std::uint64_t version = 0; ///< Of which `last` is; 0: none yet.
    drawing last;
    std::optional<sent_document> document;
    std::uint64_t text_version = 0; ///< The first one with this text.
    clock::time_point next;         ///< It is not made again earlier.
    std::map<std::uint64_t, std::string> news; ///< By the version before.
  };

  served_answer choose(const served_request& x) {
    if (x.path == "/")
      return x.method == "GET" || x.method == "HEAD"
               ? page()
               : refused("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    if (x.path != "/events" && x.path != "/stop")
      return plain_answer("404 Not Found");
    auto is_stop = x.path == "/stop";
    if (x.method != (is_stop ? "POST" : "GET"))
      return refused("405 Method Not Allowed",
                     is_stop ? "Allow: POST\r\n" : "Allow: GET\r\n");
    if (!is_from_own_page(x) || !has_token(x))
      return plain_answer("403 Forbidden");
    return is_stop ? stop(x) : stream();
  }

  // A page of another origin may send requests, but not without these fields.
  static bool is_from_own_page(const served_request& x) {
    auto origin = x.field("origin"), site = x.field("sec-fetch-site");
    return (origin.empty() || origin == concat("http://", x.field("host")))
           && (site.empty() || site == "same-origin" || site == "none");
  }

  // EventSource can send no header field.
  bool has_token(const served_request& x) const {
    constexpr std::string_view scheme = "Bearer ";
    auto field = x.field("authorization");
    if (field.starts_with(scheme))
      return same_secret(field.substr(scheme.size()), token_);
    return x.path == "/events" && same_secret(x.parameter("token"), token_);
  }

  static served_answer refused(const char* status, const char* fields) {
    auto result = plain_answer(status);
    result.fields = fields;
    return result;
  }

  static served_answer page() {
    html_page x;
    x.title = "Runs";
    x.heading = "Runs";
    x.summary = "Live, from troupe serve.";
    x.data = R"({"live":true})";
    x.is_served = true;
    served_answer result;
    result.type = "text/html; charset=utf-8";
    result.body = to_html(x);
    return result;
  }

  static served_answer stream() {
    served_answer result;
    result.type = "text/event-stream";
    result.body = "retry: 1000\n\n";
    result.is_stream = true;
    return result;
  }

  served_answer stop(const served_request& x) {
    auto name = x.parameter("run");
    runs_.follow(name);
    auto path = runs_.path_of(name);
    if (!path)
      return plain_answer("404 Not Found");
    auto how =
      x.parameter("preempt") == "1" ? end_kind::preempt : end_kind::abort;
    auto asked = runs_.is_sweep(name) ? ask_sweep_to_end(*path, how)
                                      : ask_to_end(*path, how);
    auto result = plain_answer(asked ? "200 OK" : "409 Conflict");
    result.body =
      asked ? "asked " + to_string(*asked) : utf8_text(asked.error().message);
    return result;
  }

  /// The names of *topic*: several, one a line, are a comparison.
  static std::vector<std::string> names_in(const std::string& topic) {
    std::vector<std::string> result;
    std::istringstream lines{topic};
    for (std::string line; std::getline(lines, line);)
      result.push_back(line);
    return result;
  }

  void follow(const std::string& topic) {
    for (auto& name : names_in(topic))
      runs_.follow(name);
  }

  /// 0: what it names is not there.
  std::uint64_t version_of(const std::string& topic) const {
    if (topic.empty())
      return runs_.version();
    std::uint64_t result = 0;
    for (auto& name : names_in(topic)) {
      auto version = runs_.version(name);
      if (version == 0)
        return 0;
      result = std::max(result, version);
    }
    return result;
  }

  drawing made(const std::string& topic) {
    if (topic.empty())
      return {"runs", runs_.list_json()};
    if (runs_.is_sweep(topic))
      return {"sweep", runs_.sweep_json(topic)};
    auto names = names_in(topic);
    auto data =
      names.size() > 1 ? runs_.comparison_json(names) : runs_.run_json(topic);
    if (data)
      return {names.size() > 1 ? "comparison" : "run", std::move(*data)};
    json_object why;
    why["name"] = utf8_text(topic);
    why["message"] = utf8_text(data.error().message);
    return {"problem", json::text_of(why)};
  }

  /// Makes *x* again, which takes a share of the time only.
  void make(topic& x, const std::string& name) {
    auto begin = clock::now();
    auto next = made(name);
    x.version = version_of(name) + 1;
    if (next != x.last) {
      x.last = std::move(next);
      x.document.emplace(x.last.text);
      x.text_version = x.version;
      x.news.clear();
    }
    auto end = clock::now();
    x.next = end
             + std::max<clock::duration>(shortest_pause,
                                         (end - begin) * (rendering_share - 1));
  }

  /// What a client with *known* has to be sent: what has changed, or all.
  static const std::string& event_for(const received& known, topic& x) {
    auto [found, is_new] =
      x.news.try_emplace(known.kind == x.last.kind ? known.version : 0);
    if (!is_new)
      return found->second;
    auto begin = clock::now();
    std::optional<std::string> news;
    if (found->first != 0)
      news = known.document->news_until(*x.document);
    found->second =
      news ? event_of("news", *news) : event_of(x.last.kind, x.last.text);
    x.next += (clock::now() - begin) * rendering_share;
    return found->second;
  }

  /// Sends what has changed to those who have taken all before; returns when
  /// the next is due.
  clock::time_point send_news(http_server& server) {
    auto next = clock::time_point::max();
    std::map<std::uint64_t, received> sent;
    for (auto& x : server.idle_streams()) {
      served_request asked;
      asked.query = x.query;
      auto run = asked.parameter("run");
      follow(run);
      // A run that is gone has version 0, which no one was sent yet.
      auto version = version_of(run) + 1;
      auto& topic = topics_[run];
      if (topic.version != version && clock::now() >= topic.next)
        make(topic, run);
      else if (topic.version != version)
        next = std::min(next, topic.next);
      auto& known = sent_[x.id];
      if (topic.version != 0 && topic.text_version != known.version)
        server.send(x.id, event_for(known, topic));
      sent[x.id] = {topic.text_version, topic.last.kind, topic.document, run};
    }
    // Of streams that still read, what they were sent last.
    for (auto& [id, known] : sent_)
      if (server.is_open(id))
        sent.try_emplace(id, std::move(known));
    sent_ = std::move(sent);
    forget_unread();
    return next;
  }

  /// Documents that no one reads any more go; when they may be made again,
  /// stays.
  void forget_unread() {
    std::set<std::string> read;
    for (auto& [id, known] : sent_)
      read.insert(known.topic);
    for (auto& [name, x] : topics_)
      if (x.version != 0 && !read.contains(name)) {
        topic unread;
        unread.next = x.next;
        x = std::move(unread);
      }
  }

  live_storage runs_;
  std::string token_;
  std::map<std::string, topic> topics_;
  std::map<std::uint64_t, received> sent_; ///< By stream.
  clock::time_point next_look_;
  clock::time_point next_look_elsewhere_;
};

expected<int> serve(const serve_arguments& x) {
  TROUPE_TRY(auto folder, folder_of_runs(x.folder, x.storage));
  TROUPE_TRY(auto runs, live_storage::open(folder));
  TROUPE_TRY(auto token, random_hex(16));
  TROUPE_TRY(auto signals, ending_signals());
  run_server state{std::move(runs), token};
  http_server::options how;
  how.port = x.port;
  how.own_user_only = true;
  TROUPE_TRY(auto server,
             http_server::listen(how, [&state](const served_request& asked) {
               return state.answer(asked);
             }));
  auto url = concat("http://", server.address(), "/#token=", token);
  if (x.json)
    print_json_line({{"url", url}, {"storage", utf8_text(folder.string())}});
  else
    print(url + '\n');
  TROUPE_TRY_VOID(state.run(server, signals));
  return done;
}

} // namespace

verb serve_verb() {
  return {
    "serve",
    "Shows the runs and sweeps of a storage folder in a browser, live; of a "
    "sweep,\nits trials. Prints the address to open, and serves until it is "
    "interrupted.",
    [](CLI::App& app) -> action {
      auto x = std::make_shared<serve_arguments>();
      add_folder_of_runs(app, x->folder);
      add_storage(app, x->storage);
      app
        .add_option("-p,--port", x->port,
                    "of 127.0.0.1 (default: 0, one that is free)")
        ->check(CLI::Range(0, 65535))
        ->option_text("PORT");
      add_json(app, x->json);
      app.footer(
        "The address has a token, which lets its owner see the runs and stop "
        "them: keep\nit to yourself. Only processes of this host are served. "
        "Exit code 1 if the port\nis taken or the folder goes away.");
      return [x] { return serve(*x); };
    }};
}

} // namespace troupe::tool
