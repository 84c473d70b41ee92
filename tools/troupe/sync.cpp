#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "tools/troupe/output.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/trackers/all_trackers.hpp"
#include "troupe/callbacks/tracking/sink_thread.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/text.hpp"

// troupe sync: sends what trackers have not taken yet.

namespace troupe::tool {

using namespace internal;

namespace {

constexpr auto about =
  R"(Sends to the trackers of a run what they have not taken yet: because they were
down, because the credential was missing, because the host had no network. It
resumes where the run stopped; a second call sends nothing. What W&B and Comet
have only in files is named with the reason and the next step; W&B's files are
uploaded first, where its client and a key are found. What a sink of your own has
not taken is only counted: no other program can send it.
)";

constexpr auto notes =
  R"(Credentials come from the environment, as in the run itself. Programs, servers
and paths come from the environment and from --set: of the options that the run's
folder has for a tracker, only those are taken that say what is shown. A folder or
a file of another user is refused, and a run that has a driver.
Exit code 0: all is sent, or written to files where the tracker's mode is offline;
1: something is not sent, not uploaded, or cannot be counted.)";

/// The options that a tracker's run noted are small.
constexpr std::size_t max_options_bytes = 1024 * 1024;

struct sync_arguments {
  std::shared_ptr<run_arguments> run;
  std::string tracker;                          ///< Empty: all.
  std::vector<std::string> settings;            ///< As they were given.
  std::map<std::string, given_options> options; ///< By tracker.
  int timeout = 600;                            ///< In seconds.
};

/// Adds the option TRACKER.OPTION=VALUE; false if *text* is not one.
bool add_setting(std::map<std::string, given_options>& to,
                 const std::string& text) {
  auto sign = text.find('=');
  auto dot = text.substr(0, sign).find('.');
  if (sign == text.npos || dot == text.npos || dot == 0 || dot + 1 == sign)
    return false;
  to[text.substr(0, dot)][text.substr(dot + 1, sign - dot - 1)] =
    text.substr(sign + 1);
  return true;
}

std::string check_setting(const std::string& text) {
  std::map<std::string, given_options> ignored;
  return add_setting(ignored, text)
           ? ""
           : "needs TRACKER.OPTION=VALUE, not '" + text + "'";
}

void add_options(CLI::App& app, sync_arguments& x) {
  app
    .add_option("--tracker", x.tracker,
                "this tracker only (mlflow, wandb, ...); default: all")
    ->option_text("NAME")
    ->check(not_empty);
  app
    .add_option("--set", x.settings,
                "an option of a tracker, as\n"
                "--set mlflow.tracking_uri=http://host:5000; may be repeated")
    ->option_text("TRACKER.OPTION=VALUE")
    ->allow_extra_args(false) // one value each: the run may follow
    ->check(check_setting);
  app.add_option("--timeout", x.timeout, "how long to try (default: 600)")
    ->option_text("SECONDS")
    ->check(CLI::Range(0, std::numeric_limits<int>::max()));
}

/// Files of other users are not sent with the caller's credentials.
expected<void> check_owner(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0)
    return errno == ENOENT
             ? expected<void>{}
             : tl::unexpected{storage_error("look at", path, errno)};
  if (S_ISLNK(info.st_mode))
    return failure(ec::conflict,
                   path.string() + " is a link, which is not followed");
  if (info.st_uid != ::geteuid())
    return failure(ec::conflict,
                   concat(path.string(), " belongs to user ", info.st_uid,
                          ", not to you (", ::geteuid(),
                          "): its owner must send it"));
  return {};
}

/// The files of the trackers that the run in *run* had.
expected<std::vector<fs::path>> files_of_trackers(const fs::path& run) {
  std::vector<fs::path> result;
  auto folder = run / run_layout::sinks;
  boost::system::error_code code;
  for (fs::directory_iterator i{folder, code}, end; !code && i != end;
       i.increment(code))
    result.push_back(i->path());
  if (code && code.value() != ENOENT)
    return tl::unexpected{storage_error("read folder", folder, code.value())};
  return result;
}

expected<void> check_owners(const fs::path& run) {
  // The folder itself is the caller's word, a link to it, too.
  boost::system::error_code code;
  auto folder = fs::canonical(run, code);
  if (code)
    return tl::unexpected{storage_error("find", run, code.value())};
  for (auto& path : {folder, run / run_layout::description,
                     run / run_layout::journal, run / run_layout::sinks})
    TROUPE_TRY_VOID(check_owner(path));
  TROUPE_TRY(auto files, files_of_trackers(run));
  for (auto& path : files)
    TROUPE_TRY_VOID(check_owner(path));
  return {};
}

/// The trackers that the run in *run* had, by name.
expected<std::map<std::string, std::string>> options_in(const fs::path& run) {
  std::map<std::string, std::string> result;
  TROUPE_TRY(auto files, files_of_trackers(run));
  for (auto& path : files) {
    if (path.extension() != ".options")
      continue;
    TROUPE_TRY(auto text, read_file(path, max_options_bytes));
    result.emplace(path.stem().string(), std::move(text));
  }
  return result;
}

/// Prints *text* as one line. Names in the folder may have control characters,
/// which must not get to the terminal.
void say(std::FILE* out, const std::string& text) {
  std::fprintf(out, "%s\n", one_line(text).c_str());
}

void note(const std::string& text) {
  say(stderr, text);
}

/// Sends the rest to one tracker; empty, or what is unsent.
std::string send_rest(std::shared_ptr<sink> target, const tracked_run& run,
                      std::chrono::seconds timeout) {
  if (auto ok = target->check(run); !ok)
    return ok.error().message;
  sink_thread thread{target, run, {}, note};
  thread.close();
  wait_time time;
  auto left = thread.join(time, timeout);
  // A sentence for the console of a run, which has more than one tracker.
  if (auto prefix = "tracker " + target->name() + ": ";
      left.starts_with(prefix))
    left.erase(0, prefix.size());
  if (auto rest = who_sends_the_rest(*target); left.ends_with(rest))
    left.replace(left.size() - rest.size(), rest.size(),
                 "they are kept, the next call sends them");
  return left;
}

/// How much a tracker has, in words, and whether that is everything.
struct tracker_state {
  std::string text = "all is sent";
  bool is_whole = true;
};

tracker_state lacks(std::string text) {
  return {std::move(text), false};
}

/// What is in files only after the upload of all that can be uploaded.
tracker_state upload_rest(sink& target, const tracked_run& run) {
  auto left = target.offline(run);
  if (left && *left && !(*left)->wanted) {
    if (auto ok = target.upload(run); !ok)
      return lacks(ok.error().reason.message);
    left = target.offline(run);
  }
  if (!left)
    return lacks("what is in files only is unknown: " + left.error().message);
  return *left ? tracker_state{(*left)->text, (*left)->wanted}
               : tracker_state{};
}

/// Whether the tracker, as the folder has it, may have written what was not
/// uploaded.
bool may_be_offline(const std::string& name, const std::string& in_folder,
                    const tracked_run& run) {
  auto target = make_sink(name, in_folder);
  if (!target)
    return true;
  auto left = (*target)->offline(run);
  return !left || *left;
}

/// Stands in for a sink of the user's own, which this program cannot make, to
/// read how far that has come.
struct unknown_sink final : sink {
  explicit unknown_sink(std::string x) : name_(std::move(x)) {}

  std::string name() const override { return name_; }
  std::string options() const override { return "{}"; }
  std::string state() const override { return {}; }

  sink_result start(const tracked_run&, const std::string&) override {
    return cannot();
  }
  sink_result log(std::span<const tracker_record>) override { return cannot(); }
  sink_result finish(run_status_kind,
                     std::chrono::system_clock::time_point) override {
    return cannot();
  }

private:
  sink_result cannot() const {
    return sink_fails(sink_failure::kind::permanent,
                      {ec::unsupported, "there is no tracker called " + name_});
  }

  std::string name_;
};

/// The tracker called *name* with default options, or an `unknown_sink`: enough
/// to count what it lacks.
expected<std::shared_ptr<sink>> plain_sink(const std::string& name) {
  if (!has_tracker(name))
    return std::make_shared<unknown_sink>(name);
  return make_sink(name, "{}");
}

/// How a user confirms the options *unconfirmed* of tracker *name*. Without
/// their values: a folder must not write commands for its reader.
std::string confirmation_of(const std::string& name,
                            const std::vector<std::string>& unconfirmed) {
  std::string result;
  for (auto& option : unconfirmed) {
    auto option_name = option.substr(0, option.find('='));
    auto is_plain = std::ranges::all_of(
      option_name, [](char c) { return c == '_' || (c >= 'a' && c <= 'z'); });
    result +=
      " --set " + name + '.' + (is_plain ? option_name : "OPTION") + "=VALUE";
  }
  return result;
}

/// Tracker *name* with the options of the run's folder that are taken from
/// there, and those that the user gave. The error says what to confirm.
expected<std::shared_ptr<sink>> chosen_sink(const std::string& name,
                                            const std::string& in_folder,
                                            const sync_arguments& x) {
  auto given = x.options.find(name);
  TROUPE_TRY(
    auto chosen,
    choose_options(name, in_folder,
                   given == x.options.end() ? given_options{} : given->second));
  for (auto& option : chosen.taken)
    say(x.run->json ? stderr : stdout,
        name + ": the run's folder says " + option);
  if (!chosen.unconfirmed.empty())
    return failure(ec::invalid_argument,
                   "not sent: the run's folder says "
                     + joined(chosen.unconfirmed)
                     + ", which is taken from you only: confirm it with"
                     + confirmation_of(name, chosen.unconfirmed));
  return make_sink(name, chosen.options);
}

/// Sends and uploads what tracker *name* lacks, whose options the folder has as
/// *in_folder*.
tracker_state send_to(const std::string& name, const std::string& in_folder,
                      const tracked_run& run, const sync_arguments& x) {
  auto plain = plain_sink(name);
  if (!plain)
    return lacks(plain.error().message);
  sink_feed feed{*plain, run, {}, note};
  auto unsent = feed.unsent();
  if (!unsent)
    return lacks("what is unsent cannot be counted: " + unsent.error().message);
  auto is_known = has_tracker(name);
  if (*unsent == 0 && (!is_known || !may_be_offline(name, in_folder, run))) {
    auto refused = feed.refused();
    return refused.empty() ? tracker_state{}
                           : lacks("all else is sent; " + refused);
  }
  if (!is_known)
    return lacks(counted(*unsent, "record") + (*unsent == 1 ? " is" : " are")
                 + " unsent; " + who_sends_the_rest(**plain));
  auto target = chosen_sink(name, in_folder, x);
  if (!target)
    return lacks(target.error().message);
  if (*unsent > 0)
    if (auto left = send_rest(*target, run, std::chrono::seconds{x.timeout});
        !left.empty())
      return lacks(std::move(left));
  return upload_rest(**target, run);
}

tl::unexpected<error>
no_tracker(const std::string& name,
           const std::map<std::string, std::string>& known) {
  return failure(
    ec::invalid_argument,
    concat("the run has no tracker called '", name, "'; it has ",
           known.empty() ? "none" : joined(known | std::views::keys)));
}

expected<int> send_all(const fs::path& run, const sync_arguments& x) {
  TROUPE_TRY_VOID(check_owners(run));
  TROUPE_TRY(auto description, read_description(run));
  TROUPE_TRY(auto folder,
             run_folder::open(run.parent_path(), run.filename().string()));
  TROUPE_TRY(auto options, options_in(run));
  if (!x.tracker.empty() && !options.contains(x.tracker))
    return no_tracker(x.tracker, options);
  for (auto& [name, given] : x.options) {
    if (!options.contains(name))
      return no_tracker(name, options);
    // Also if nothing is left to send: the next call would fail.
    auto chosen = choose_options(name, options.at(name), given);
    if (!chosen && chosen.error().code == ec::invalid_argument)
      return tl::unexpected{chosen.error()};
  }
  auto status = done;
  auto trackers = json_object::array();
  for (auto& [name, text] : options) {
    if (!x.tracker.empty() && name != x.tracker)
      continue;
    auto state = send_to(name, text, describe_tracked_run(description, run), x);
    if (!x.run->json)
      say(stdout, name + ": " + state.text);
    trackers.push_back({{"tracker", utf8_text(name)},
                        {"whole", state.is_whole},
                        {"text", utf8_text(state.text)}});
    status = state.is_whole ? status : failed;
  }
  if (x.run->json)
    print_json({{"trackers", std::move(trackers)}});
  return status;
}

} // namespace

verb sync_verb() {
  return {"sync", about, [](CLI::App& app) -> action {
            auto x = std::make_shared<sync_arguments>();
            x->run = add_run_arguments(app);
            add_options(app, *x);
            app.footer(notes);
            return [x] {
              for (auto& setting : x->settings)
                add_setting(x->options, setting);
              return x->run->path().and_then(
                [&](const fs::path& run) { return send_all(run, *x); });
            };
          }};
}

} // namespace troupe::tool
