#include "troupe/callbacks/report_page/page_data.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "troupe/callbacks/report_page/chart_data.hpp"
#include "troupe/callbacks/report_page/page_text.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/store/retention.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using json::object_writer;

constexpr std::size_t max_checkpoint_marks = 200;
constexpr std::size_t max_metric_columns = 12;
constexpr std::size_t max_attempts = 500;
constexpr std::size_t max_rank_rows = 1024;
constexpr std::size_t max_text_bytes = 500;

constexpr auto append_pair = [](std::string& out, const auto& pair) {
  append_name(out += '[', pair.first);
  append_text(out += ',', pair.second);
  out += ']';
};

/// The last *count* of *all*.
template <class T>
std::span<const T> last_of(const std::vector<T>& all, std::size_t count) {
  return std::span{all}.last(std::min(all.size(), count));
}

// -- the run as a whole

void append_overview(object_writer& out, const run_facts& facts,
                     const journal_digest& digest) {
  append_text(out.begin("name"), facts.name);
  append_text(out.begin("status"), status_of(facts, digest));
  append_text(out.begin("error"), error_of(facts, digest));
  out.array_field("complaints", complaints_of(facts, digest), append_text);
  if (digest.first_time) {
    std::chrono::duration<double, std::milli> begin =
      digest.first_time->time_since_epoch();
    append_number(out.begin("begin"), std::round(begin.count()), 15);
    append_seconds(out.begin("end"), digest.seconds_at(digest.last_time));
  } else {
    out.null_field("begin").null_field("end");
  }
  out.field("reports", digest.reports).field("world", digest.world_size);
}

// -- checkpoints

/// Writes the marks of checkpoints and the rows of those that are left.
class checkpoint_writer {
public:
  checkpoint_writer(const run_facts& facts, const journal_digest& digest)
    : digest_(digest), state_(facts.state ? &*facts.state : nullptr) {
    for (auto& x : digest.checkpoints)
      noted_[{x.name, x.index, x.attempt}] = &x;
    if (!state_)
      return;
    for (auto i : retention{state_->retention}.ranking(state_->checkpoints))
      ranked_.push_back(&state_->checkpoints[i]);
    std::ranges::reverse(ranked_);
  }

  void append(std::string& out) const {
    object_writer to{out};
    to.field("committed", digest_.checkpoints.size());
    append_marks(to);
    if (state_)
      append_rows(to);
    else
      append_noted_rows(to);
    to.end();
  }

private:
  // Of many, every second, third, … one and the best.
  void append_marks(object_writer& out) const {
    auto& all = digest_.checkpoints;
    auto stride = all.size() / max_checkpoint_marks + 1;
    std::vector<const journal_digest::checkpoint*> shown;
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((all.size() - 1 - i) % stride == 0 || is_best(all[i]))
        shown.push_back(&all[i]);
    out.array_field("marks", shown, [this](std::string& to, auto* x) {
      object_writer mark{to};
      append_text(mark.begin("name"), x->name);
      mark.field("x", x->index);
      append_seconds(mark.begin("t"), digest_.seconds_at(x->time));
      append_if(mark, "best", is_best(*x));
      mark.end();
    });
  }

  void append_rows(object_writer& out) const {
    auto& kept = state_->retention;
    out.field("left", ranked_.size());
    if (kept.num_to_keep)
      out.field("keep", *kept.num_to_keep);
    append_name(out.begin("by"), kept.checkpoint_score_attribute);
    out.field("order", to_string(kept.checkpoint_score_order));
    auto names = metric_names();
    out.array_field("columns", names, append_name);
    out.array_field("rows", shown(), [&](std::string& to, auto* x) {
      object_writer row{to};
      append_row(row, x->data.name(), x->index, x->attempt);
      append_if(row, "best", x == ranked_.front());
      append_if(row, "latest", is_latest(x));
      row.array_field("values", names, [&](std::string& value, auto& name) {
        auto found = x->values.find(name);
        append_name(value, found ? to_string(*found) : std::string{});
      });
      row.end();
    });
  }

  // The state is lost; the journal still knows which there were.
  void append_noted_rows(object_writer& out) const {
    out.array_field("columns", std::span<const std::string>{}, append_name);
    auto last = last_of(digest_.checkpoints, max_checkpoint_rows);
    out.array_field("rows", last | std::views::reverse,
                    [this](std::string& to, auto& x) {
                      object_writer row{to};
                      append_row(row, x.name, x.index, x.attempt);
                      row.end();
                    });
  }

  void append_row(object_writer& row, const std::string& name,
                  std::uint64_t index, std::uint64_t attempt) const {
    append_name(row.begin("name"), name);
    row.field("x", index).field("attempt", attempt);
    auto noted = noted_.find({name, index, attempt});
    if (noted == noted_.end())
      return;
    auto& x = *noted->second;
    append_seconds(row.begin("t"), digest_.seconds_at(x.time));
    if (x.seconds > 0)
      append_number(row.begin("took"), x.seconds, 6);
  }

  static void append_if(object_writer& out, std::string_view name, bool is) {
    if (is)
      out.begin(name) += "true";
  }

  bool is_best(const journal_digest::checkpoint& x) const {
    auto best = ranked_.empty() ? nullptr : ranked_.front();
    return best && x.index == best->index && x.attempt == best->attempt
           && x.name == best->data.name();
  }

  bool is_latest(const kept_checkpoint* x) const {
    return x == &state_->checkpoints.back();
  }

  /// The best first, and the latest in any case.
  std::vector<const kept_checkpoint*> shown() const {
    std::vector<const kept_checkpoint*> result;
    for (auto* x : ranked_)
      if (result.size() < max_checkpoint_rows || is_latest(x))
        result.push_back(x);
    return result;
  }

  /// Names of the numbers that checkpoints have; the score comes first. Of
  /// older checkpoints the names may not be known.
  std::vector<std::string> metric_names() const {
    auto& score = state_->retention.checkpoint_score_attribute;
    std::set<std::string> names;
    for (auto* x : ranked_)
      for (auto& [name, value] : x->values.unpacked())
        if (value.is_number() && name != score)
          names.insert(name);
    std::vector<std::string> result;
    if (!score.empty())
      result.push_back(score);
    for (auto& name : names)
      if (result.size() < max_metric_columns)
        result.push_back(name);
    return result;
  }

  const journal_digest& digest_;
  const saved_run* state_;
  /// By name, report and attempt: one that a restart made again has the name of
  /// the one that it lost.
  std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t>,
           const journal_digest::checkpoint*>
    noted_;
  std::vector<const kept_checkpoint*> ranked_; ///< The best first.
};

// -- tables and texts

void append_ranks(object_writer& out, const journal_digest& digest) {
  auto shown =
    std::span{digest.ranks}.first(std::min(digest.ranks.size(), max_rank_rows));
  out.array_field("ranks", shown, [](std::string& to, auto& x) {
    auto count = static_cast<double>(std::max<std::uint64_t>(x.reports, 1));
    append_number(to += '[', x.sum / count, 6);
    append_number(to += ',', x.max, 6);
    append_number(to += ',', x.last, 6);
    (to += ',') += concat(x.reports, ']');
  });
}

void append_attempts(std::string& out, const journal_digest& digest) {
  object_writer to{out};
  to.field("count", digest.attempts.size());
  to.array_field("last", last_of(digest.attempts, max_attempts),
                 [&](std::string& list, auto& x) {
                   object_writer row{list};
                   row.field("n", x.number).field("x", x.first_report);
                   append_seconds(row.begin("t"), digest.seconds_at(x.time));
                   row.field("reports", x.reports);
                   append_name(row.begin("resume"), x.resume);
                   append_text(row.begin("failure"),
                               shortened(x.failure, max_text_bytes));
                   row.end();
                 });
  to.end();
}

void append_events(std::string& out, const journal_digest& digest) {
  object_writer to{out};
  to.field("count", digest.event_count);
  to.array_field("last", digest.events, [&](std::string& list, auto& x) {
    object_writer row{list};
    append_name(row.begin("kind"), x.kind);
    append_seconds(row.begin("t"), digest.seconds_at(x.time));
    row.field("attempt", x.attempt);
    auto what = event_sentence(x.kind, x.fields).value_or(to_string(x.fields));
    append_text(row.begin("what"), shortened(what, max_text_bytes));
    row.end();
  });
  to.end();
}

void append_texts(object_writer& out, const run_facts& facts,
                  const journal_digest& digest) {
  out.array_field("texts", digest.texts, [](std::string& to, auto& x) {
    append_pair(to, std::pair{x.first, shortened(x.second, max_text_bytes)});
  });
  auto config = facts.config;
  config.insert(config.end(), digest.params.begin(), digest.params.end());
  out.array_field("config", config, append_pair);
  out.array_field("environment", facts.environment, append_pair);
  out.array_field("logs", facts.logs, [](std::string& to, auto& x) {
    object_writer log{to};
    append_text(log.begin("file"), x.file);
    append_text(log.begin("text"), x.text);
    log.begin("whole") += x.whole ? "true" : "false";
    log.end();
  });
}

} // namespace

std::string status_of(const run_facts& facts, const journal_digest& digest) {
  // The journal's last word is newer than the state's.
  if (digest.end)
    return digest.end->status;
  return std::string{
    to_string(facts.state ? facts.state->status : run_status_kind::running)};
}

std::string error_of(const run_facts& facts, const journal_digest& digest) {
  if (digest.end)
    return digest.end->error;
  // A resumed run may still have the error that ended it before.
  if (!facts.state || !facts.state->error
      || facts.state->status == run_status_kind::running)
    return {};
  return facts.state->error->message;
}

std::vector<std::string> complaints_of(const run_facts& facts,
                                       const journal_digest& digest) {
  auto result = facts.complaints;
  if (digest.damage_count > 0)
    result.push_back(
      counted(digest.damage_count, "line")
      + " of the journal could not be read; what they said is missing here.");
  std::ranges::copy(digest.damages, std::back_inserter(result));
  auto add_names = [&](const char* what, const std::set<std::string>& names) {
    if (!names.empty())
      result.push_back(concat("There are more ", what, ": ",
                              counted(names.size(), "name"),
                              " left out, the first is ",
                              shortened(*names.begin(), max_name_bytes), "."));
  };
  add_names("metrics than this page draws", digest.left_out);
  add_names("texts and params than this page shows", digest.unkept);
  return result;
}

std::string page_data(const run_facts& facts, const journal_digest& digest) {
  std::string result;
  object_writer out{result, ",\n"};
  append_overview(out, facts, digest);
  append_charts(out, digest);
  append_ranks(out, digest);
  append_attempts(out.begin("attempts"), digest);
  checkpoint_writer{facts, digest}.append(out.begin("checkpoints"));
  append_events(out.begin("events"), digest);
  append_texts(out, facts, digest);
  out.end();
  return result;
}

std::string summary_line(const run_facts& facts, const journal_digest& digest) {
  auto result =
    status_of(facts, digest) + ": " + counted(digest.reports, "report");
  if (digest.world_size > 0)
    result += " of " + counted(digest.world_size, "rank");
  result += ", " + counted(digest.attempts.size(), "attempt") + ", "
            + counted(digest.checkpoints.size(), "checkpoint");
  if (digest.first_time)
    result += ", " + elapsed_text(digest.seconds_at(digest.last_time));
  return result;
}

} // namespace troupe::internal
