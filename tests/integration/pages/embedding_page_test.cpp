// The code of docs/embedding.md, compiled and run.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <gtest/gtest.h>
#include <troupe/actors.hpp>

#include "tests/support/environment_guard.hpp"
#include "tests/support/page_code.hpp"
#include "tests/support/temporary_folder.hpp"

namespace embedding_page {

struct config {
  int steps = 3;

  TROUPE_FIELDS(steps)
};

void train(troupe::train_context& context, const config& cfg) {
  for (int i = 0; i < cfg.steps; ++i)
    context.report({{"step", i}});
}

int complain(const std::string& why) {
  ADD_FAILURE() << why;
  return 1;
}

/// Serves as long as the run is under way.
void serve_requests(troupe::run_handle& run) {
  EXPECT_FALSE(run.wait().error);
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);    // before the first thread
  troupe::register_messages(); // before the first actor system
  troupe::system_config settings;
  caf::actor_system system{settings};
  auto run = troupe::data_parallel_trainer{train,
                                           config{},
                                           {.scaling = {.num_workers = 2},
                                            .run = {.name = "nightly"}}}
               .start(system);
  if (!run)
    return complain(run.error().message);
  serve_requests(*run);      // run->status(), run->preempt(), ...
  auto result = run->wait(); // blocks: call it where that does not matter
  return result.error ? 1 : 0;
}

struct current_run {
  std::optional<troupe::run_handle> run;
};

std::string storage_of_rounds;
std::vector<std::uint64_t> seen;

auto next_round() {
  return troupe::data_parallel_trainer{
    train,
    config{},
    {.scaling = {.num_workers = 2},
     .run = {.name = "round-" + std::to_string(seen.size()),
             .storage_path = storage_of_rounds}}};
}

void use(const troupe::result& x) {
  EXPECT_EQ(x.status, troupe::run_status_kind::finished);
  seen.push_back(x.attempts);
}

troupe::run_closed_actor::behavior_type
rounds(troupe::run_closed_actor::stateful_pointer<current_run> self, int left) {
  auto begin = [self, left]() mutable {
    auto& run = self->state.run;
    run.reset(); // The last one is closed: this does not wait.
    if (left-- == 0)
      return self->quit();
    auto started = next_round().start(self->system());
    if (!started || !started->when_closed(self))
      return self->quit(caf::sec::runtime_error);
    run.emplace(std::move(*started));
  };
  begin();
  return {[begin](const troupe::run_closed& x) mutable {
    use(*troupe::result::from_path(x.path));
    begin();
  }};
}

TEST(embedding_page_test, an_actor_runs_one_round_after_another) {
  troupe::internal::test::temporary_folder storage;
  storage_of_rounds = storage.path().string();
  troupe::register_messages();
  troupe::system_config settings;
  caf::actor_system system{settings};
  caf::scoped_actor self{system};
  self->wait_for(system.spawn(rounds, 3));
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 1, 1}));
}

TEST(embedding_page_test, the_service_runs_to_its_end) {
  using namespace troupe::internal::test;
  temporary_folder storage;
  environment_guard there{{{"HOME", storage.path().string()}}};
  std::string program = "service";
  char* arguments[] = {program.data(), nullptr};
  EXPECT_EQ(main(1, arguments), 0);
  EXPECT_EQ(
    troupe::result::from_path(storage / "troupe_results/nightly")->status,
    troupe::run_status_kind::finished);
}

TEST(embedding_page_test, the_page_shows_this_code) {
  EXPECT_EQ(
    troupe::internal::test::compare_page_code(
      "docs/embedding.md", {"tests/integration/pages/embedding_page_test.cpp"}),
    2u);
}

} // namespace embedding_page
