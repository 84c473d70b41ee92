// The protocol as it is on the wire: interfaces, type ids and messages against
// tests/data/protocol.txt.

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>

#include <caf/deep_to_string.hpp>
#include <gtest/gtest.h>

#include "tests/support/stepped_system.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

namespace {

const error problem{ec::storage, "no space left"};
const checkpoint_part part{"best", {{"model.bin", 7, 99}, {"a/b", 8, 100}}, 3};
const rank_report one_report{1, 12, {{"x", 1}, {"y", 0.5}}, part};
const report_batch batch{
  12, {{{"x", 1}}, {{"ok", true}, {"s", "text"}}}, {part, std::nullopt}};
const rank_failure failed{rank_failure::kind_type::signal, 11, "what", 4711,
                          "host"};
const function_address address{"lib.so", 77, "abcd"};
const process_exit cause{process_exit::kind::signaled, 9, "last words"};
const rank_facts facts{.run_name = "r",
                       .run_path = "/runs/r",
                       .run_inode = 11,
                       .attempt = 2,
                       .rank = 1,
                       .world_size = 4,
                       .local_rank = 1,
                       .local_world_size = 2,
                       .node_rank = 3,
                       .in_process = true,
                       .cores = {4, 5},
                       .gpus = {6},
                       .first_report = 8,
                       .host = "h3",
                       .host_address = "10.0.0.4",
                       .lost_after_ms = 10'000};
const run_status status{.state = run_state::restarting,
                        .attempt = 3,
                        .world_size = 4,
                        .reports = 12,
                        .last_report = 11,
                        .reports_per_second = 2.5,
                        .last_metrics = {{"loss", 0.5}},
                        .elapsed_s = 61,
                        .callback_queue = 2,
                        .callback_s = 0.25,
                        .callbacks = {{"csv", 0.25}},
                        .waits = "report 3: rank 1 is missing"};
const hook_spec hooks{address, function_address{"", 79, "ef"},
                      function_address{"", 80, "ef"}};
const run_context context{
  .name = "r",
  .path = "/runs/r",
  .id = "ab",
  .attempt = 2,
  .world_size = 4,
  .report_index = 6,
  .config = "{}",
  .start_time = run_context::clock::time_point{std::chrono::seconds{7}}};

/// What a rank shows, but for its moments: ages are never the same twice.
const rank_snapshot shown{
  .rank = 1,
  .pass = {.epoch = 2, .batches = 3, .taken = 4},
  .came_to_start = true,
  .left_group = true,
  .gave_up = true,
  .counts_calls = false,
  .failed = collective_failure::others,
  .is_behind = true,
  .collectives = 6,
  .called = 7,
  .awaited = 8,
  .reported = 9,
  .waited = 10,
  .is_stopped = true,
  .has_ended = true,
  .vitals = process_vitals{std::chrono::seconds{1}, 11, 12, true, true}};

const trial one_trial{.index = 3,
                      .name = "trial-0003",
                      .params = {{"lr", 0.5}},
                      .status = run_status_kind::finished,
                      .score = 0.25,
                      .metrics = {{"loss", 0.25}},
                      .reports = 7,
                      .seconds = 61,
                      .reason = "text"};

result outcome() {
  result x;
  x.status = run_status_kind::errored;
  x.metrics = {{"x", 1}};
  x.checkpoint = checkpoint::from_directory("/c");
  x.best_checkpoints = {{*x.checkpoint, {{"x", 1}}, 12, 2}};
  x.path = "/runs/r";
  x.error = run_error{ec::rank_failed, "text", {{1, failed}}};
  x.attempts = 3;
  return x;
}

const checkpoint at_c = checkpoint::from_directory("/c");
const loop_spec loop{address, {"", 78, "ef"}, "config", hooks};
const link_credentials credentials{"authority", "certificate", "key"};
const stop_notice leaving{13, "text", 14, stop_info::kind_type::preempted, 15};

/// Calls *f* with a value of every type on the wire, no field at its default.
template <class F>
void for_each_sample(F f) {
  f(ec::corrupt);
  f(problem);
  f(metrics{{"x", 1}, {"y", 0.5}, {"ok", true}, {"s", "text"}});
  f(one_report);
  f(batch);
  f(facts);
  f(failed);
  f(status);
  f(run_status_kind::errored);
  f(run_error{ec::rank_failed, "text", {{1, failed}}});
  f(address);
  f(cause);
  f(start_attempt{2, at_c, 3});
  f(stop_attempt{2, problem, 5000});
  f(preempt_attempt{2, "text", 14});
  f(attempt_started{2, 4});
  f(attempt_ended{2, true, true, "text"});
  f(attempt_failed{2, true, problem, {{1, failed}}, true, "text"});
  f(attempt_warning{2, "text", true});
  f(epoch_advanced{2, epoch_progress{3, 4, 5, 6.5}});
  f(commit_batch{2, batch});
  f(loop);
  f(start_loop{facts, at_c, loop, credentials});
  f(rank_ready{2, 1, 4711, "host"});
  f(stop_loop{2, problem});
  f(loop_ended{2, 1, problem, true});
  f(report{2, one_report, false});
  f(report_committed{12, "/c", leaving});
  f(leaving);
  f(reports_awaited{2, 1});
  f(join_barrier{2, 1, 3, meeting_kind::broadcast, "payload", problem});
  f(barrier_released{"payload"});
  f(get_checkpoints{7, "best"});
  f(checkpoint_list{{{at_c, {{"x", 1}}, 12, 2}}, true});
  f(store_set{2, "key", "value"});
  f(store_get{2, "key"});
  f(store_add{2, "key", -3});
  f(store_check{2, {"a", "b"}});
  f(store_wait{2, {"a", "b"}});
  f(store_erase{2, "key"});
  f(store_size{2});
  f(store_compare_set{2, "key", "old", "new"});
  f(rank_launched{2, 1, 4711});
  f(rank_exited{2, 1, cause, true});
  f(rank_launch_failed{2, 1, problem});
  f(begin_attempt{});
  f(attempt_start{2, 12, reported_checkpoint{at_c, {{"x", 1}}, 11, 1}});
  f(end_run{run_status_kind::aborted,
            run_error{ec::stopped, "text", {{1, failed}}}});
  f(before_run{context});
  f(after_report{"ab", 12, 2, {{{"x", 1}}, {{"x", 2}}}, at_c});
  f(after_exception{"ab", 2, {{1, failed}}});
  f(after_run{"ab", outcome()});
  f(fail_run{problem});
  f(callback_done{0.5,
                  true,
                  {problem},
                  {{"csv", 0.5}},
                  {"callback 1"},
                  {{abort_run{"text"}}}});
  f(context);
  f(outcome());
  f(callback_time{"csv", 0.5});
  f(hooks);
  f(loop_event{"params", {{"lr", 0.5}}});
  f(log_event{2, {"params", {{"lr", 0.5}}}});
  f(start_run{});
  f(abort_run{"text"});
  f(get_status{});
  f(preempt_run{"text", 15});
  f(finish_run{"text"});
  f(resize_callback_queue{15});
  f(run_order{preempt_run{"text", 15}});
  f(follow_run{});
  f(state_changed{"ab", 2, run_state::running, run_state::restarting});
  f(group_started{"ab", 2, 4});
  f(group_ended{"ab", 2, problem});
  f(start_ranks{2, {facts}, at_c, loop, false, 17, {{"A", "b"}}, credentials});
  f(end_ranks{2, problem});
  f(kill_rank{2, 1});
  f(attempt_over{2});
  f(reports_answered{2, {12, "/c", leaving}, problem});
  f(barrier_answered{2, {"payload"}, problem});
  f(call_refused{2, 1, 12, problem});
  f(look_at_ranks{2, {1}});
  f(host_snapshots{2, {shown}});
  f(show_stacks{2, {1}});
  f(stacks_shown{2, {1}});
  f(host_calls{
    2,
    {{{}, 3, report{2, one_report, false}},
     {{},
      4,
      join_barrier{2, 1, 3, meeting_kind::broadcast, "payload", problem}},
     {{}, 5, reports_awaited{2, 1}}}});
  f(rank_loop_ended{2, {2, 1, problem, true}, true, {shown}});
  f(rank_disconnected{2, 1});
  f(agent_hello{{1,
                 "h2",
                 "ef",
                 "10.0.0.2",
                 "10.0.0.1",
                 4,
                 2,
                 "ab",
                 {{"lib", "cd"}},
                 "0.1",
                 7,
                 9}});
  f(host_accepted{2, "/runs/r", 17, "eth1", 20'000, {10, 12}});
  f(host_checked{2, 1, problem, "10.1.0.4"});
  f(host_tick{2, 1});
  f(agent_launched{3});
  f(launcher_ended{3, "text", true});
  f(follow_ranks{});
  f(ranks_changed{"ab", 2, 4, {}});
  f(open_mailbox{2, 1, 3, 4, true});
  f(mail{5, true, true, caf::make_message(problem)});
  f(mail_answer{5, problem, caf::make_message(problem)});
  f(mail_taken{5});
  f(mail_dropped{5});
  f(shared_bytes::copy_of(std::as_bytes(std::span{"text", 4})));
  f(host_notice{2, 1, "text", 14});
  f(tensor_message{
    6, {2, 1}, shared_bytes::copy_of(std::as_bytes(std::span{"two 4 B", 8}))});
  f(trial_ended{"/runs/s", one_trial});
  f(sweep_ended{{{one_trial}, "/runs/s", problem, true, score_order::max}});
  f(run_closed{"ab", "/runs/r"});
  f(ask_for_place{});
  f(launcher_said{3, "text"});
  f(host_warning{2, 1, "text"});
}

template <class T>
caf::byte_buffer to_bytes(T x) {
  caf::byte_buffer bytes;
  auto sink = serializer_to(bytes);
  EXPECT_TRUE(sink.apply(x)) << caf::type_name_v<T>;
  return bytes;
}

// Numbers in CAF 0.18, an enum in 1.x.
constexpr auto first_id =
  static_cast<std::uint16_t>(caf::id_block::troupe::begin);
constexpr auto end_id = static_cast<std::uint16_t>(caf::id_block::troupe::end);

std::string name_of(caf::type_id_t id) {
  auto name = caf::query_type_name(id);
  return {name.data(), name.size()};
}

/// CAF 0.18 prints an optional in a list as "anonymous(*x)", 1.x as "*x".
std::string without_wrappers(std::string text) {
  constexpr std::string_view wrapper = "anonymous(";
  for (std::string_view wrapped : {"anonymous(*", "anonymous(null"})
    for (std::size_t i = 0; (i = text.find(wrapped, i)) != std::string::npos;) {
      auto end = i + wrapper.size();
      for (int open = 1; open > 0; ++end)
        open += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
      text.erase(end - 1, 1);
      text.erase(i, wrapper.size());
    }
  return text;
}

template <class Handle>
void describe(caf::actor_system& system, const std::string& name,
              std::string& text) {
  text += name + '\n';
  for (auto& signature : system.message_types<Handle>())
    text += "  " + signature + '\n';
}

std::string describe_protocol() {
  stepped_system system;
  std::string text = "# Interfaces: who takes what and answers with what.\n";
  describe<driver_actor>(*system, "driver", text);
  describe<worker_group_actor>(*system, "worker_group", text);
  describe<host_agent_actor>(*system, "host_agent", text);
  describe<trainer_actor>(*system, "trainer", text);
  describe<committer_actor>(*system, "committer", text);
  describe<user_callback_actor>(*system, "user_callback", text);
  describe<run_observer_actor>(*system, "run_observer", text);
  describe<run_control_actor>(*system, "run_control", text);
  describe<rank_observer_actor>(*system, "rank_observer", text);
  describe<postbox_actor>(*system, "postbox", text);
  describe<sweep_observer_actor>(*system, "sweep_observer", text);
  describe<run_closed_actor>(*system, "run_closed", text);
  text += "\n# Type ids, counted from the first of ours.\n";
  for (auto id = first_id; id < end_id; ++id)
    text +=
      std::to_string(id - first_id) + ' ' + name_of(caf::type_id_t{id}) + '\n';
  text += "\n# Samples: what they hold, their bytes on the wire.\n";
  for_each_sample([&text]<class T>(const T& x) {
    text += std::string{caf::type_name_v<T>.data()} + ": "
            + without_wrappers(caf::deep_to_string(x)) + "\n ";
    for (auto byte : to_bytes(x)) {
      auto value = static_cast<unsigned>(byte);
      text += ' ';
      text += "0123456789abcdef"[value / 16];
      text += "0123456789abcdef"[value % 16];
    }
    text += '\n';
  });
  return text;
}

/// The lines that *a* has and *b* has not.
std::string missing_lines(const std::string& a, const std::string& b) {
  std::string result;
  std::istringstream lines{a};
  for (std::string line; std::getline(lines, line);)
    if (('\n' + b).find('\n' + line + '\n') == std::string::npos)
      result += "  " + line + '\n';
  return result;
}

} // namespace

TEST(protocol_test, the_protocol_is_the_one_on_record) {
  auto now = describe_protocol();
  auto path = fs::path{TROUPE_TEST_DATA} / "protocol.txt";
  if (std::getenv("TROUPE_UPDATE_PROTOCOL"))
    write_bytes(path, now);
  auto recorded = bytes_of(path);
  EXPECT_TRUE(now == recorded)
    << "The protocol differs from tests/data/protocol.txt.\nOnly on record:\n"
    << missing_lines(recorded, now) << "Only in the code:\n"
    << missing_lines(now, recorded)
    << "If that is meant, run\n  TROUPE_UPDATE_PROTOCOL=1 actors_test "
       "--gtest_filter='protocol_test.*'\nand commit the file. New ids go "
       "last.";
}

TEST(protocol_test, every_message_survives_the_wire) {
  for_each_sample([]<class T>(const T& x) {
    auto name = std::string{caf::type_name_v<T>.data()};
    auto bytes = to_bytes(x);
    T copy{};
    if constexpr (!std::is_empty_v<T>) {
      EXPECT_NE(to_bytes(copy), bytes) << name << ": the sample is a default";
    }
    auto source = deserializer_of(bytes);
    EXPECT_TRUE(source.apply(copy)) << name;
    std::uint8_t more = 0;
    EXPECT_FALSE(source.apply(more)) << name;
    EXPECT_EQ(to_bytes(copy), bytes) << name;
    EXPECT_EQ(caf::deep_to_string(copy), caf::deep_to_string(x)) << name;
  });
}

TEST(protocol_test, numbers_survive_the_wire_bit_by_bit) {
  using limits = std::numeric_limits<double>;
  for (auto x : {0.0, -0.0, 5e-324, -5e-324, 1e-310, -5.75e-309, limits::min(),
                 limits::max(), limits::lowest(), limits::infinity(),
                 -limits::infinity(), limits::quiet_NaN(), 0.1}) {
    metrics copy;
    auto bytes = to_bytes(metrics{{"x", x}});
    auto source = deserializer_of(bytes);
    ASSERT_TRUE(source.apply(copy)) << x;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(copy["x"].number()),
              std::bit_cast<std::uint64_t>(x))
      << x;
  }
}

TEST(protocol_test, a_message_cut_short_is_refused) {
  for_each_sample([]<class T>(const T& x) {
    auto bytes = to_bytes(x);
    if (bytes.empty())
      return;
    bytes.pop_back();
    auto source = deserializer_of(bytes);
    T copy{};
    if constexpr (std::is_same_v<T, mail>) {
      // The rank answers that it cannot read it.
      EXPECT_TRUE(source.apply(copy));
      EXPECT_TRUE(copy.body.empty());
    } else {
      EXPECT_FALSE(source.apply(copy)) << caf::type_name_v<T>.data();
    }
  });
}

TEST(protocol_test, every_type_on_the_wire_has_a_sample) {
  std::vector<caf::type_id_t> sampled;
  for_each_sample(
    [&sampled]<class T>(const T&) { sampled.push_back(caf::type_id_v<T>); });
  // Handles need two systems: the integration tests send them.
  sampled.push_back(caf::type_id_v<trainer_actor>);
  sampled.push_back(caf::type_id_v<driver_actor>);
  sampled.push_back(caf::type_id_v<worker_group_actor>);
  sampled.push_back(caf::type_id_v<run_observer_actor>);
  sampled.push_back(caf::type_id_v<run_control_actor>);
  sampled.push_back(caf::type_id_v<rank_observer_actor>);
  sampled.push_back(caf::type_id_v<postbox_actor>);
  for (auto id = first_id; id < end_id; ++id)
    EXPECT_EQ(std::ranges::count(sampled, caf::type_id_t{id}), 1)
      << name_of(caf::type_id_t{id});
}

TEST(protocol_test, numbers_that_no_code_of_ours_has_are_refused) {
  caf::byte_buffer bytes{caf::byte_buffer::value_type{200}};
  auto source = deserializer_of(bytes);
  ec code{};
  EXPECT_FALSE(source.apply(code));
  auto again = deserializer_of(bytes);
  run_status_kind kind{};
  EXPECT_FALSE(again.apply(kind));
}

namespace {

/// Whether *T*, which begins with a number of one byte, refuses one that no one
/// has given a meaning.
template <class T>
bool refuses_an_unknown_number() {
  caf::byte_buffer bytes;
  auto sink = serializer_to(bytes);
  T x;
  EXPECT_TRUE(sink.apply(x));
  auto source = deserializer_of(bytes);
  EXPECT_TRUE(source.apply(x));
  bytes[0] = caf::byte_buffer::value_type{200};
  auto again = deserializer_of(bytes);
  return !again.apply(x);
}

} // namespace

TEST(protocol_test, structs_with_a_number_that_no_one_knows_are_refused) {
  EXPECT_TRUE(refuses_an_unknown_number<error>());
  EXPECT_TRUE(refuses_an_unknown_number<run_error>());
  EXPECT_TRUE(refuses_an_unknown_number<process_exit>());
  EXPECT_TRUE(refuses_an_unknown_number<rank_failure>());
}

TEST(protocol_test, an_error_passes_through_an_actor_unchanged) {
  EXPECT_EQ(from_caf(to_caf(problem)), problem);
  EXPECT_FALSE(from_caf(to_caf(error{})));
  EXPECT_EQ(from_caf(caf::make_error(caf::sec::request_timeout)).code,
            ec::timeout);
  EXPECT_EQ(from_caf(caf::make_error(caf::sec::request_receiver_down)).code,
            ec::protocol);
}

} // namespace troupe::internal::test
