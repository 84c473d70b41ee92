#include "troupe/runtime/sweep/sweep_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr auto description_file = run_layout::sweep_description;
constexpr auto journal_file = run_layout::sweep_journal;
constexpr const char* lock_name = "sweep.lock";

/// Far more than a space of thousands of params needs.
constexpr std::size_t max_description_bytes = 64 * 1024 * 1024;
constexpr std::size_t max_journal_bytes = std::size_t{4} * 1024 * 1024 * 1024;

constexpr const char* started = "sweep_begun";
constexpr const char* finished = "sweep_ended";
constexpr const char* begun = "trial_begun";
constexpr const char* ended = "trial_ended";
constexpr const char* compared = "trial_compared";

struct start_line {
  std::string kind = started;
  sweep_start content;
};

struct end_line {
  std::string kind = finished;
  sweep_end content;
};

/// Two lines of the journal about a trial.
struct trial_line {
  std::string kind;
  trial content;
};

struct comparison_line {
  std::string kind = compared;
  trial_comparison content;
};

std::string now_text() {
  return timestamp(std::chrono::system_clock::now());
}

process_identity to_process(const json::document& x) {
  if (auto result = process_from_line(json::to_text(x)))
    return std::move(*result);
  throw json::format_error{"names no process"};
}

/// Whether *name* is that of a file that a driver or a reader of a sweep makes,
/// or of one while it is written.
bool is_of_a_sweep(const std::string& name) {
  auto plain = run_layout::plain_name(name);
  return plain == description_file || plain == journal_file
         || plain == run_layout::sweep_page || plain == run_layout::end_request;
}

/// Whether *name* is that of a file that only runs have.
bool is_of_a_run(const std::string& name) {
  return name == run_layout::description || name == run_layout::state
         || name == run_layout::journal || name == run_layout::attempts;
}

} // namespace

namespace json {

template <class Fields>
void fields_of(Fields& f, sweep_description& x) {
  f.format(1)("name", x.name)("id", x.id)("begun", x.begun);
  f("searcher", x.searcher)("space", x.space);
}

template <class Fields>
void fields_of(Fields& f, start_line& x) {
  auto& y = x.content;
  f("event", x.kind)("time", y.time)("metric", y.metric)("trials", y.trials);
  f("order", number_of(y.order, score_order::min));
  f("driver", text_as([line = to_line(y.driver)] { return line; },
                      [&y](const document& in) { y.driver = to_process(in); }));
  f.added("config", y.config);
}

template <class Fields>
void fields_of(Fields& f, end_line& x) {
  auto& y = x.content;
  f("event", x.kind)("time", y.time)("reason", y.reason);
  f("status", number_of(y.status));
}

template <class Fields>
void fields_of(Fields& f, trial_line& x) {
  auto& y = x.content;
  f("event", x.kind)("trial", y.index)("params", y.params);
  if (x.kind != ended)
    return;
  f("status", number_of(y.status));
  f("score", y.score)("metrics", y.metrics)("reports", y.reports);
  f("seconds", y.seconds)("reason", y.reason);
}

template <class Fields>
void fields_of(Fields& f, comparison_line& x) {
  auto& y = x.content.content;
  f("event", x.kind)("metric", x.content.metric)("trial", y.trial);
  f("rung", y.rung)("value", y.value)("continues", y.continues);
  f.added("reports", y.reports);
}

} // namespace json

namespace {

/// Adds what a line about a trial says.
void add_trial(sweep_history& to, const std::string& kind,
               const json::document& x) {
  trial_line read;
  read.kind = kind;
  json::field_reader fields{x};
  fields_of(fields, read);
  auto& one = read.content;
  auto& all = to.trials;
  auto is_known = one.index < all.size();
  // One that has failed may begin again.
  auto fits = is_known ? kind == ended
                           || all[one.index].status == run_status_kind::errored
                       : kind == begun && one.index == all.size();
  if (!fits)
    throw json::format_error{concat("a line about trial ", one.index,
                                    " follows ", counted(all.size(), "trial"))};
  one.name = trial_name(one.index);
  std::erase(to.ends, one.index);
  if (kind == ended)
    to.ends.push_back(one.index);
  if (is_known)
    all[one.index] = std::move(one);
  else
    all.push_back(std::move(one));
}

void add_line(sweep_history& to, const json::document& x) {
  auto kind = json::to_text(json::field(x, "event"));
  if (kind == started) {
    to.start = json::from_fields<start_line>(x).content;
    to.end.reset();
  } else if (kind == finished) {
    to.end = json::from_fields<end_line>(x).content;
  } else if (kind == compared) {
    to.comparisons.push_back(json::from_fields<comparison_line>(x).content);
  } else if (kind == begun || kind == ended) {
    add_trial(to, kind, x);
  } else {
    throw json::unknown_format{"has an event '" + kind
                               + "' that this version does not know"};
  }
}

/// Adds the whole lines of *text*; returns where they end. Fails with the first
/// damaged line if a later one does not fit.
expected<std::size_t> read_lines(std::string_view text, const fs::path& path,
                                 sweep_history& to) {
  std::size_t number = 0, begin = 0;
  for (auto end = text.find('\n'); end != text.npos;
       begin = end + 1, end = text.find('\n', begin)) {
    ++number;
    auto line = text.substr(begin, end + 1 - begin);
    auto what = concat(path.string(), ", line ", number);
    if (auto whole = verify_sum(line, what); !whole) {
      to.damaged.push_back(std::move(whole.error()));
      continue;
    }
    auto add = [&to](const json::document& x) {
      add_line(to, x);
      return true;
    };
    auto added = json::read<bool>(line, what, add);
    if (added)
      continue;
    auto is_gap = added.error().code == ec::corrupt && !to.damaged.empty();
    return tl::unexpected{is_gap ? to.damaged.front() : added.error()};
  }
  return begin;
}

expected<sweep_description> parse_description(const std::string& text,
                                              const fs::path& path) {
  TROUPE_TRY_VOID(verify_sum(text, path.string()));
  return json::read<sweep_description>(text, path.string(),
                                       json::from_fields<sweep_description>);
}

template <class Line>
std::string line_of(Line x) {
  auto text = json::open_object(x, ",");
  append_sum(text);
  return text;
}

} // namespace

expected<bool> is_sweep(const fs::path& path) {
  TROUPE_TRY(auto folder, look_up(path));
  if (!folder.is_folder())
    return false;
  return look_up(path / description_file).map([](const auto& found) {
    return found.is_file();
  });
}

expected<sweep_description> read_sweep_description(const fs::path& path) {
  TROUPE_TRY(auto is_one, is_sweep(path));
  if (!is_one)
    return failure(ec::invalid_argument,
                   path.string()
                     + " is not the folder of a sweep: it has no sweep.json");
  TROUPE_TRY(auto folder, held_folder::follow(path));
  TROUPE_TRY(auto text,
             folder.read_file(description_file, max_description_bytes));
  return parse_description(text, path / description_file);
}

expected<sweep_content> read_sweep(const fs::path& path) {
  sweep_content result;
  TROUPE_TRY(result.description, read_sweep_description(path));
  TROUPE_TRY(auto folder, held_folder::follow(path));
  TROUPE_TRY(auto journal, folder.look_up_link(journal_file));
  if (!journal.exists())
    return result;
  TROUPE_TRY(auto lines, folder.read_file(journal_file, max_journal_bytes));
  TROUPE_TRY_VOID(read_lines(lines, path / journal_file, result.history));
  return result;
}

expected<own_lock> lock_sweep(const held_folder& folder) {
  auto me = to_string(own_identity());
  TROUPE_TRY(auto taken, take_signed_lock(folder, lock_name, me));
  auto& [lock, holder] = taken;
  if (lock)
    return std::move(lock);
  if (holder == me)
    return failure(ec::conflict, "this process runs the sweep in "
                                   + folder.path().string() + " already");
  return failure(ec::conflict, concat("another process runs the sweep in ",
                                      folder.path().string(),
                                      holder.empty() ? "" : ": ", holder));
}

expected<std::vector<std::string>>
remove_sweep_files(const held_folder& folder) {
  TROUPE_TRY(auto names, folder.names());
  std::vector<std::string> left;
  for (auto& name : names)
    if (is_of_a_sweep(name) && name != description_file)
      TROUPE_TRY_VOID(folder.remove_file(name));
    else if (name != description_file && name != lock_name)
      left.push_back(name);
  // Until here the folder is a sweep's: an interrupted removal can be repeated.
  TROUPE_TRY_VOID(folder.remove_file(description_file));
  if (left.empty())
    TROUPE_TRY_VOID(folder.remove_file(lock_name));
  return left;
}

expected<std::unique_ptr<sweep_store>>
sweep_store::open(const fs::path& storage_path, sweep_description description) {
  if (description.name.empty()) {
    TROUPE_TRY_VOID(make_storage(storage_path, 0700));
    TROUPE_TRY(auto made,
               make_new_folder(storage_path, generated_name("sweep")));
    description.name = made.filename().string();
  }
  auto path = storage_path / description.name;
  auto storage = path.parent_path();
  TROUPE_TRY_VOID(make_storage(storage, 0700));
  TROUPE_TRY_VOID(make_folders(path));
  TROUPE_TRY(auto folder, held_folder::open(path));
  TROUPE_TRY_VOID(refuse_other_owner(folder));
  std::unique_ptr<sweep_store> result{new sweep_store{std::move(folder)}};
  TROUPE_TRY_VOID(result->refuse_others());
  TROUPE_TRY(result->lock_, lock_sweep(result->folder_));
  // A driver that described the sweep has done this. A start that was killed
  // before may not.
  TROUPE_TRY(auto described, result->folder_.look_up_link(description_file));
  if (!described.exists()) {
    TROUPE_TRY_VOID(sync_folder(storage));
    TROUPE_TRY_VOID(sync_name_of(storage));
  }
  TROUPE_TRY_VOID(result->open_journal());
  TROUPE_TRY_VOID(result->describe(std::move(description)));
  return result;
}

expected<void> sweep_store::refuse_others() const {
  TROUPE_TRY(auto names, folder_.names());
  // A sweep was here if the lock is.
  auto is_proof = [](const std::string& name) {
    return name == description_file || name == lock_name;
  };
  if (std::ranges::any_of(names, is_of_a_run))
    return failure(ec::conflict,
                   path().string()
                     + " is the folder of a run: give the sweep another name");
  if (!names.empty() && std::ranges::none_of(names, is_proof))
    return failure(ec::conflict,
                   path().string() + " holds " + names.front()
                     + ", but no sweep: give the sweep another name");
  auto has = [&names](const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  // The journal is made first, and removed first.
  if (has(description_file) && !has(journal_file)
      && std::ranges::any_of(names, is_trial_name))
    return failure(ec::corrupt,
                   concat("there is no ", (path() / journal_file).string(),
                          ", but the sweep has trials: give the "
                          "sweep another name"));
  return {};
}

expected<void> sweep_store::describe(sweep_description x) {
  TROUPE_TRY(auto there, folder_.look_up_link(description_file));
  auto file = path() / description_file;
  if (there.exists()) {
    TROUPE_TRY(auto text,
               folder_.read_file(description_file, max_description_bytes));
    TROUPE_TRY(description_, parse_description(text, file));
    auto differs = [&](const char* what, const std::string& before,
                       const std::string& now) {
      return failure(ec::conflict,
                     concat(path().string(), " holds another sweep: its ", what,
                            " is ", before, ", this one's is ", now,
                            "; give this one another name"));
    };
    auto is_same =
      description_.space == x.space && description_.searcher == x.searcher;
    if (is_same)
      return {};
    if (!history_.trials.empty())
      return description_.space == x.space
               ? differs("searcher", description_.searcher, x.searcher)
               : differs("space", description_.space, x.space);
    x.id = description_.id;
    x.begun = description_.begun;
  } else {
    x.id = new_id();
    x.begun = now_text();
  }
  auto text = json::open_object(x);
  append_sum(text);
  TROUPE_TRY_VOID(check_size(file, text, max_description_bytes));
  TROUPE_TRY_VOID(folder_.replace_file(description_file, text));
  description_ = std::move(x);
  return {};
}

// Lines of a killed process may not be on the disk yet (SS-1). Those of a sync
// that failed are not, and later syncs of the same file succeed without them:
// all that was read is written again.
expected<void> sweep_store::open_journal() {
  auto file_path = path() / journal_file;
  TROUPE_TRY(auto there, folder_.look_up_link(journal_file));
  if (there.exists()) {
    TROUPE_TRY(auto text, folder_.read_file(journal_file, max_journal_bytes));
    TROUPE_TRY(auto end, read_lines(text, file_path, history_));
    TROUPE_TRY_VOID(refuse_lost_trials());
    text.resize(end); // The rest is what a killed process could not finish.
    TROUPE_TRY_VOID(folder_.replace_file(journal_file, text));
  }
  TROUPE_TRY(auto file,
             folder_.open_file(journal_file,
                               append_file::open_flags() | O_CREAT, "open"));
  if (!there.exists())
    TROUPE_TRY_VOID(folder_.sync());
  TROUPE_TRY(journal_, append_file::take(std::move(file), file_path));
  return {};
}

expected<void> sweep_store::refuse_lost_trials() const {
  if (history_.damaged.empty())
    return {};
  TROUPE_TRY(auto names, folder_.names());
  for (auto& name : names)
    if (is_trial_name(name)
        && !std::ranges::count(history_.trials, name, &trial::name))
      return tl::unexpected{history_.damaged.front()};
  return {};
}

expected<void> sweep_store::append(const std::string& line, bool is_durable) {
  {
    std::lock_guard guard{mutex_};
    TROUPE_TRY_VOID(syncs_.check(journal_.path()));
    TROUPE_TRY_VOID(journal_.append(line));
  }
  if (!is_durable)
    return {};
  // One at a time: a sync beside one that fails can succeed without the line.
  std::lock_guard guard{sync_mutex_};
  return syncs_.pass(journal_.path(), [this] { return journal_.sync(); });
}

expected<void> sweep_store::start(sweep_start x) {
  x.driver = own_identity();
  x.time = now_text();
  return append(line_of(start_line{started, std::move(x)}), false);
}

expected<void> sweep_store::finish(sweep_end x) {
  x.time = now_text();
  return append(line_of(end_line{finished, std::move(x)}), true);
}

expected<void> sweep_store::begin(const trial& x) {
  return append(line_of(trial_line{begun, x}), true);
}

expected<void> sweep_store::end(const trial& x) {
  return append(line_of(trial_line{ended, x}), true);
}

expected<std::optional<end_request>> sweep_store::take_end_request() const {
  return internal::take_end_request(folder_, own_identity());
}

expected<void> sweep_store::compare(const trial_comparison& x) {
  return append(line_of(comparison_line{compared, x}), false);
}

} // namespace troupe::internal
