#include "troupe/runtime/values/journal_entry.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {

TEST(journal_entry_test, every_repair_has_a_sentence_with_its_fields) {
  metrics fields{{"before", 2},     {"bytes", 8},       {"checkpoint", "c3"},
                 {"first_line", 6}, {"index", 3},       {"lines", 1},
                 {"name", "c3"},    {"processes", "7"}, {"reason", "why"},
                 {"variable", "A"}, {"what", "config"}};
  for (std::string kind : {"checkpoint_adopted",    "checkpoint_not_removed",
                           "checkpoint_reinstated", "checkpoint_removed",
                           "checkpoint_rotten",     "checkpoint_shared",
                           "checkpoint_strangers",  "checkpoint_unknown",
                           "checkpoint_unscored",   "description_lost",
                           "driver_lost",           "journal_completed",
                           "journal_damaged",       "journal_lost",
                           "journal_tail_cut",      "programs_killed",
                           "programs_left",         "programs_not_searched",
                           "run_changed",           "staging_not_removed",
                           "state_rebuilt"}) {
    auto sentence = event_sentence(kind, fields);
    ASSERT_TRUE(sentence) << kind;
    EXPECT_EQ(sentence->find('{'), sentence->npos) << *sentence;
    EXPECT_EQ(to_string(store_event{kind, fields}), *sentence);
    EXPECT_TRUE(event_kind::is_of_the_run(kind)) << kind;
  }
}

TEST(journal_entry_test, an_event_shows_its_fields_where_a_sentence_lacks_one) {
  EXPECT_FALSE(event_sentence("checkpoint_rotten", {{"name", "c3"}}));
  EXPECT_EQ(to_string(store_event{"checkpoint_rotten", {{"name", "c3"}}}),
            "checkpoint_rotten: name=c3");
  EXPECT_FALSE(event_sentence("tracker_log", {}));
}

TEST(journal_entry_test, leaves_warnings_and_own_kinds_to_loops) {
  for (auto kind : {warning_kind, "tracker_log", "mine", ""})
    EXPECT_FALSE(event_kind::is_of_the_run(kind)) << kind;
}

TEST(journal_entry_test, shows_fields_of_a_kind_without_sentence) {
  EXPECT_FALSE(event_sentence("state", {{"to", "running"}}));
}

TEST(journal_entry_test, names_only_what_an_event_has) {
  EXPECT_EQ(event_sentence("attempt_begun", {{"first_report", 0}}),
            "begins at report 0");
  EXPECT_EQ(
    event_sentence("attempt_begun", {{"first_report", 4}, {"resume", "c3"}}),
    "resumes at report 4 from c3");
}

} // namespace troupe::internal
