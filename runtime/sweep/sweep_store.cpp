#include "troupe/runtime/sweep/sweep_store.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>

#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr const char* description_file = "sweep.json";
constexpr const char* journal_file = "sweep.jsonl";
constexpr const char* lock_name = "sweep.lock";

/// Far more than a space of thousands of params needs.
constexpr std::size_t max_description_bytes = 64 * 1024 * 1024;
constexpr std::size_t max_journal_bytes = std::size_t{4} * 1024 * 1024 * 1024;

constexpr const char* begun = "trial_begun";
constexpr const char* ended = "trial_ended";
constexpr const char* compared = "trial_compared";

/// Two lines of the journal about a trial.
struct trial_line {
  std::string kind;
  trial content;
};

struct comparison_line {
  std::string kind = compared;
  trial_comparison content;
};

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
void fields_of(Fields& f, trial_line& x) {
  auto& y = x.content;
  f("event", x.kind)("trial", y.index)("params", y.params);
  if (x.kind != ended)
    return;
  f("status", number_of(y.status, run_status_kind::preempted));
  f("score", y.score)("metrics", y.metrics)("reports", y.reports);
  f("seconds", y.seconds)("reason", y.reason);
}

template <class Fields>
void fields_of(Fields& f, comparison_line& x) {
  auto& y = x.content.content;
  f("event", x.kind)("metric", x.content.metric)("trial", y.trial);
  f("rung", y.rung)("value", y.value)("continues", y.continues);
}

} // namespace json

namespace {

template <class Line>
std::string line_of(Line x) {
  auto text = json::open_object(x, ",");
  append_sum(text);
  return text;
}

} // namespace

std::string trial_name(std::size_t index) {
  char text[32];
  std::snprintf(text, sizeof(text), "trial-%04zu", index);
  return text;
}

expected<std::unique_ptr<sweep_store>>
sweep_store::open(const fs::path& storage_path, sweep_description description) {
  auto path = storage_path / description.name;
  TROUPE_TRY_VOID(make_folders(path));
  TROUPE_TRY(auto folder, held_folder::open(path));
  std::unique_ptr<sweep_store> result{new sweep_store{std::move(folder)}};
  TROUPE_TRY_VOID(result->refuse_others());
  TROUPE_TRY_VOID(result->take_lock());
  TROUPE_TRY_VOID(result->open_journal());
  TROUPE_TRY_VOID(result->describe(std::move(description)));
  return result;
}

expected<void> sweep_store::refuse_others() const {
  TROUPE_TRY(auto names, folder_.names());
  auto is_ours = [](const std::string& name) {
    return name.starts_with("sweep.");
  };
  if (std::ranges::any_of(names, is_of_a_run))
    return failure(ec::conflict,
                   path().string()
                     + " is the folder of a run: give the sweep another name");
  if (std::ranges::find(names, description_file) == names.end()
      && !std::ranges::all_of(names, is_ours))
    return failure(ec::conflict,
                   path().string() + " holds " + names.front()
                     + ", but no sweep: give the sweep another name");
  return {};
}

expected<void> sweep_store::take_lock() {
  TROUPE_TRY(lock_,
             own_lock::open(folder_, lock_name, O_RDWR | O_CREAT, "open"));
  TROUPE_TRY(auto taken, lock_file(lock_.file(), path() / lock_name));
  if (taken)
    return {};
  return failure(ec::conflict,
                 "another process runs the sweep in " + path().string());
}

expected<void> sweep_store::describe(sweep_description x) {
  TROUPE_TRY(auto there, folder_.look_up_link(description_file));
  auto file = path() / description_file;
  if (there.exists()) {
    TROUPE_TRY(auto text,
               folder_.read_file(description_file, max_description_bytes));
    TROUPE_TRY_VOID(verify_sum(text, file.string()));
    TROUPE_TRY(description_,
               json::read<sweep_description>(
                 text, file.string(), json::from_fields<sweep_description>));
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
    x.begun = utc_text(std::chrono::system_clock::now(), "%Y-%m-%dT%H:%M:%SZ");
  }
  auto text = json::open_object(x);
  append_sum(text);
  TROUPE_TRY_VOID(check_size(file, text, max_description_bytes));
  TROUPE_TRY_VOID(folder_.replace_file(description_file, text));
  description_ = std::move(x);
  return {};
}

expected<void> sweep_store::open_journal() {
  auto file_path = path() / journal_file;
  TROUPE_TRY(auto file,
             folder_.open_file(journal_file,
                               append_file::open_flags() | O_CREAT, "open"));
  TROUPE_TRY_VOID(folder_.sync());
  TROUPE_TRY(auto text, read_open_file(file, file_path, max_journal_bytes));
  TROUPE_TRY(journal_, append_file::take(std::move(file), file_path));
  std::size_t number = 0, begin = 0;
  for (auto end = text.find('\n'); end != text.npos;
       begin = end + 1, end = text.find('\n', begin)) {
    ++number;
    auto line = std::string_view{text}.substr(begin, end + 1 - begin);
    auto what = concat(file_path.string(), ", line ", number);
    TROUPE_TRY_VOID(verify_sum(line, what));
    TROUPE_TRY_VOID(read_line(line, what));
  }
  // The rest is what a killed process could not finish.
  return journal_.cut(begin);
}

expected<void> sweep_store::read_line(std::string_view line,
                                      const std::string& what) {
  auto read = [this](const json::document& x) {
    auto kind = json::to_text(json::field(x, "event"));
    if (kind == compared) {
      history_.comparisons.push_back(
        json::from_fields<comparison_line>(x).content);
      return true;
    }
    if (kind != begun && kind != ended)
      throw json::unknown_format{"has an event '" + kind
                                 + "' that this version does not know"};
    trial_line read;
    read.kind = kind;
    json::field_reader fields{x};
    fields_of(fields, read);
    auto& one = read.content;
    auto& all = history_.trials;
    if (one.index > all.size() || (kind == begun && one.index != all.size()))
      throw json::format_error{concat("a line about trial ", one.index,
                                      " follows ", all.size(), " trials")};
    one.name = trial_name(one.index);
    if (kind == begun) {
      all.push_back(std::move(one));
    } else {
      history_.ends.push_back(one.index);
      all.at(one.index) = std::move(one);
    }
    return true;
  };
  TROUPE_TRY_VOID(json::read<bool>(line, what, read));
  return {};
}

expected<void> sweep_store::append(const std::string& line, bool is_durable) {
  {
    std::lock_guard guard{mutex_};
    TROUPE_TRY_VOID(journal_.append(line));
  }
  return is_durable ? journal_.sync() : expected<void>{};
}

expected<void> sweep_store::begin(const trial& x) {
  return append(line_of(trial_line{begun, x}), true);
}

expected<void> sweep_store::end(const trial& x) {
  return append(line_of(trial_line{ended, x}), true);
}

expected<void> sweep_store::compare(const trial_comparison& x) {
  return append(line_of(comparison_line{compared, x}), false);
}

} // namespace troupe::internal
