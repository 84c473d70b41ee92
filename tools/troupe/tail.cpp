#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/text.hpp"

// troupe tail: the last reports of a run, and those to come.

namespace troupe::tool {

using namespace internal;

namespace {

struct tail_arguments {
  std::shared_ptr<run_arguments> run;
  std::size_t rows = 10;
  std::vector<std::string> names; ///< Empty: all.
  bool follow = false;
  /// After how many seconds the silence of a driver elsewhere is worth a line.
  std::uint32_t silence_s = 60;
};

std::string row_text(const journaled_batch& x, const tail_arguments& args) {
  auto out = concat(x.index, "  ", time_text(x.time));
  auto add = [&](std::string_view name, const metric_value& value) {
    out += concat("  ", painted(one_line(name), color::dim), '=',
                  one_line(to_string(value)));
  };
  auto values = x.values.empty() ? metrics{} : x.values.front();
  for (auto& [name, value] : values)
    if (args.names.empty() || std::ranges::count(args.names, name) > 0)
      add(name, value);
  if (!x.checkpoint.empty())
    out += "  " + painted(one_line(x.checkpoint), color::cyan);
  return out + '\n';
}

json_object row_json(const journaled_batch& x, const tail_arguments& args) {
  auto ranks = json_object::array();
  for (auto& values : x.values) {
    auto chosen = json_object::object();
    for (auto& [name, value] : values)
      if (args.names.empty() || std::ranges::count(args.names, name) > 0)
        chosen[utf8_text(name)] = json::value_of(value);
    ranks.push_back(std::move(chosen));
  }
  return {{"report", x.index},
          {"attempt", x.attempt},
          {"time", time_json(x.time)},
          {"ranks", std::move(ranks)},
          {"checkpoint", text_json(x.checkpoint)}};
}

void print_row(const journaled_batch& x, const tail_arguments& args) {
  if (args.run->json)
    print_json_line(row_json(x, args));
  else
    print(row_text(x, args));
}

/// Reads what was appended, if anything was, which it returns; calls *add* with
/// each report. Damaged lines are named.
template <class Add>
expected<bool> read_more(journal_reader& from, int& code, Add add) {
  auto before = from.offset();
  TROUPE_TRY_VOID(from.read_rest(
    [&](journal_entry x) {
      if (auto row = std::get_if<journaled_batch>(&x))
        add(std::move(*row));
    },
    [&](const error& x) {
      complain(x.message);
      code = failed;
    }));
  return from.offset() > before;
}

expected<unique_fd> watch(const fs::path& run) {
  unique_fd result{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  auto add = [&](const fs::path& path, std::uint32_t what) {
    return ::inotify_add_watch(result.get(), path.c_str(),
                               what | IN_MOVE_SELF | IN_DELETE_SELF)
           >= 0;
  };
  if (!result || !add(run / run_layout::journal, IN_MODIFY | IN_ATTRIB)
      || !add(run, IN_MOVED_TO))
    return tl::unexpected{storage_error("watch", run, errno)};
  (void) add(run / run_layout::attempts, IN_MODIFY | IN_DELETE);
  return result;
}

/// Says once when a driver on another host has been silent for long. Time is
/// that between looks at its journal: the clock of the storage may be another.
class silence_watch {
public:
  explicit silence_watch(std::uint32_t limit_s) : limit_(limit_s) {}

  void look(const found_run& run, bool has_grown) {
    auto now = clock::now();
    if (has_grown)
      last_ = now;
    auto is_long = now - last_ >= limit_;
    if (is_long && !is_known_)
      complain(concat(run.name, " has written nothing for ",
                      duration_text(limit_),
                      "; its driver is not on this host, and cannot be seen to "
                      "have died"));
    is_known_ = is_long;
  }

private:
  using clock = std::chrono::steady_clock;

  std::chrono::seconds limit_;
  clock::time_point last_ = clock::now();
  bool is_known_ = false;
};

// The kernel says when the journal grows, the state is replaced, the driver
// releases the run or ends, or no one reads our output any longer; not what a
// driver on another host does.
expected<void> follow(journal_reader& from, const fs::path& path, int& code,
                      const tail_arguments& args) {
  constexpr auto release_interval_ms = 1000;
  TROUPE_TRY(auto changes, watch(path));
  auto first = read_run(path);
  auto driver = open_driver(first);
  auto is_elsewhere = first.presence == driver_presence::elsewhere;
  silence_watch silence{args.silence_s};
  auto show = [&](journaled_batch x) { print_row(x, args); };
  auto show_more = [&]() -> expected<bool> {
    if (auto again = is_elsewhere ? from.reopen() : expected<void>{}; !again) {
      // If the run was removed, its state says so.
      TROUPE_TRY(auto found, look_up(path / run_layout::journal));
      if (found.exists())
        return tl::unexpected{std::move(again.error())};
    }
    return read_more(from, code, show);
  };
  auto was_free = false;
  for (;;) {
    // What the driver wrote last is read after its end was seen.
    auto is_over = !driver && !is_elsewhere;
    if (driver) {
      pollfd end{driver.get(), POLLIN, 0};
      is_over = ::poll(&end, 1, 0) > 0;
    }
    TROUPE_TRY(auto has_grown, show_more());
    auto run = read_run(path);
    if (run.state && run.state->status != run_status_kind::running) {
      if (!args.run->json)
        complain(run.name + " is " + run.state_name());
      return show_more().map([](bool) {});
    }
    auto is_free = run.presence == driver_presence::gone;
    if (is_over || (is_free && was_free)) {
      complain(run.name + " is " + run.state_name());
      return show_more().map([](bool) {});
    }
    if (is_elsewhere)
      silence.look(run, has_grown);
    pollfd events[] = {{changes.get(), POLLIN, 0},
                       {driver.get(), POLLIN, 0},
                       {STDOUT_FILENO, 0, 0}};
    auto limit = is_free        ? release_interval_ms
                 : is_elsewhere ? static_cast<int>(elsewhere_interval.count())
                                : -1;
    auto ready = ::poll(events, 3, limit);
    if (ready < 0 && errno != EINTR)
      return tl::unexpected{storage_error("watch", path, errno)};
    // A claim is empty for a moment when it is made, too.
    was_free = is_free && ready == 0;
    if (events[2].revents != 0) // No one reads: as a write would show.
      return {};
    char ignored[4096];
    while (::read(changes.get(), ignored, sizeof(ignored)) > 0)
      ;
  }
}

expected<int> tail(const tail_arguments& x) {
  TROUPE_TRY(auto path, x.run->path());
  TROUPE_TRY(auto reader, journal_reader::open(path / run_layout::journal));
  std::deque<journaled_batch> last;
  std::set<std::string> known;
  auto code = done;
  TROUPE_TRY_VOID(read_more(reader, code, [&](journaled_batch row) {
    for (auto& values : row.values)
      for (auto& [name, value] : values)
        known.insert(name);
    last.push_back(std::move(row));
    if (last.size() > x.rows)
      last.pop_front();
  }));
  for (auto& name : x.names)
    if (!known.contains(name) && !(x.follow && known.empty()))
      return failure(ec::invalid_argument,
                     "no report has a metric '" + name + "'"
                       + near_names(name, {known.begin(), known.end()}));
  for (auto& row : last)
    print_row(row, x);
  if (x.follow)
    TROUPE_TRY_VOID(follow(reader, path, code, x));
  return code;
}

} // namespace

verb tail_verb() {
  return {"tail", "Prints the last reports of a run, one a line.",
          [](CLI::App& app) -> action {
            auto x = std::make_shared<tail_arguments>();
            x->run = add_run_arguments(app);
            app.add_option("-n,--rows", x->rows, "how many (default: 10)")
              ->option_text("COUNT")
              ->check(CLI::Range(0, 1'000'000'000));
            app
              .add_option("-m,--metric", x->names,
                          "show this metric only; may be repeated")
              ->option_text("NAME")
              ->allow_extra_args(false)
              ->check(not_empty);
            app.add_flag("-f,--follow", x->follow,
                         "print reports as they come, until the run ends");
            app
              .add_option("--silence", x->silence_s,
                          "with --follow: say when a driver on another host "
                          "has written nothing for so long (default: 60)")
              ->option_text("SECONDS")
              ->check(CLI::Range(1, 1'000'000'000));
            app.footer("With --json, each line is an object.");
            return [x] { return tail(*x); };
          }};
}

} // namespace troupe::tool
