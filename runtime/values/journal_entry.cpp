#include "troupe/runtime/values/journal_entry.hpp"

#include <algorithm>

namespace troupe::internal {

namespace {

/// A kind of event, with a sentence that has names of fields in braces.
struct event_row {
  std::string_view kind;
  std::string_view sentence; ///< Empty: the kind has none.
  bool is_of_the_run = true; ///< Not for loops to log.
};

/// All kinds that the run itself writes. Of several sentences for one kind, the
/// first counts whose fields are all there.
constexpr event_row rows[] = {
  {event_kind::attempt_begun, "resumes at report {first_report} from {resume}"},
  {event_kind::attempt_begun, "begins at report {first_report}"},
  {event_kind::attempt_left, "the next attempt continues: {reason}"},
  {"callback_failed", "{reason}"},
  {"checkpoint_adopted", "checkpoint {name} is the run's, although its state "
                         "did not name it: {reason}"},
  {"checkpoint_missing", "checkpoint {name} is missing or damaged: {reason}"},
  {"checkpoint_not_removed", "checkpoint {name} cannot be removed: {reason}"},
  {"checkpoint_reinstated", "checkpoint {name} is kept after all: {reason}"},
  {"checkpoint_removed", "checkpoint {name} was removed: {reason}"},
  {"checkpoint_rotten",
   "checkpoint {name} is damaged and was set aside: {reason}"},
  {"checkpoint_shared", "files of checkpoint {name} have other names, too, and "
                        "could be changed there: {reason}"},
  {"checkpoint_strangers", "checkpoint {name} has other files: {reason}"},
  {"checkpoint_unknown",
   "checkpoints/{name} is left alone, it is not used: {reason}"},
  {"checkpoint_unscored", "checkpoint {name} has no score: {reason}"},
  {"description_lost", "the run has a new id, for which trackers may begin a "
                       "second run: {reason}"},
  {event_kind::driver_lost, "{reason}"},
  {"event_refused", ""},
  {"host_joined", "host {host} has joined"},
  {event_kind::host_lost, "host {host} is lost: {cause}"},
  {event_kind::journal_completed,
   "report {index} was not in the journal and is taken from {checkpoint}"},
  {"journal_damaged", "the journal has damaged lines: {lines}, the first is "
                      "line {first_line}; what they recorded is lost"},
  {"journal_lost", "journal.jsonl is missing: metrics and events of earlier "
                   "attempts are lost, except reports that saved a checkpoint "
                   "that is left"},
  {"journal_tail_cut", "the journal ended in a line that is not whole: its "
                       "{bytes} bytes were cut off"},
  {event_kind::preempted, ""},
  {"programs_killed",
   "killed what ranks of an earlier attempt had left: {processes}"},
  {"programs_left", "what ranks left may still run: {reason}"},
  {"programs_not_searched",
   "programs that ranks of an earlier attempt left may still run: {reason}. "
   "They have {variable} in their environments"},
  {"ranks_abandoned", "does not wait for ranks of {hosts}: nothing that they "
                      "still do counts"},
  {event_kind::ranks_failed, "{reason}"},
  {"run_changed", "this driver differs from that of attempt {before}: {what}"},
  {event_kind::run_ended, "{status}: {error}"},
  {event_kind::run_ended, "{status}"},
  {"staging_not_removed", "what an unfinished report left in checkpoints/ "
                          "cannot be removed, {name}: {reason}"},
  {"state", ""},
  {"state_rebuilt", "the run's state was rebuilt from its journal and its "
                    "checkpoints: {reason}"},
  {event_kind::stop_decided, ""},
  {warning_kind, "{text}", false},
  {"world_resized", "{to} ranks instead of {from}: {why}"},
};

std::optional<std::string> filled(std::string_view sentence,
                                  const metrics& fields) {
  std::string result;
  for (;;) {
    auto begin = sentence.find('{');
    result += sentence.substr(0, begin);
    if (begin == sentence.npos)
      return result;
    auto end = sentence.find('}', begin);
    auto value = fields.find(sentence.substr(begin + 1, end - begin - 1));
    if (!value)
      return std::nullopt;
    result += to_string(*value);
    sentence.remove_prefix(end + 1);
  }
}

} // namespace

std::optional<std::string> event_sentence(std::string_view kind,
                                          const metrics& fields) {
  for (auto& x : rows)
    if (x.kind == kind && !x.sentence.empty())
      if (auto result = filled(x.sentence, fields))
        return result;
  return std::nullopt;
}

bool event_kind::is_of_the_run(std::string_view kind) noexcept {
  return std::ranges::any_of(
    rows, [kind](auto& x) { return x.kind == kind && x.is_of_the_run; });
}

std::string to_string(const store_event& x) {
  if (!x.text.empty())
    return x.text;
  if (auto sentence = event_sentence(x.kind, x.fields))
    return *sentence;
  return x.kind + ": " + to_string(x.fields);
}

} // namespace troupe::internal
