// A whole run of a program with secrets in its environment: none of them may
// be in a rank, in the run's folder or in what is printed.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>

#include <troupe/trackers.hpp>
#include <troupe/train.hpp>

#include "tests/support/sink_records.hpp"

namespace troupe::test {
namespace {

using testing::HasSubstr;

/// In the environment of the program, with a value that nothing else has.
constexpr std::array secrets{"WANDB_API_KEY",
                             "COMET_API_KEY",
                             "MLFLOW_TRACKING_TOKEN",
                             "DATABRICKS_TOKEN",
                             "AWS_SECRET_ACCESS_KEY",
                             "AWS_SESSION_TOKEN",
                             "HF_TOKEN",
                             "AZURE_CLIENT_SECRET",
                             "GOOGLE_API_KEY",
                             "MY_DATABASE_PASSWORD"};

/// What the program's own environment says of *name*, as long as W&B's keys.
std::string planted(const std::string& name) {
  auto result = "planted" + name;
  result.resize(40, 'x');
  return result;
}

struct config {
  std::string folder;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder);
  }
};

void loop(train_context& context, const config& cfg) {
  std::ifstream kernel{"/proc/self/environ", std::ios::binary};
  std::string all{std::istreambuf_iterator<char>{kernel}, {}};
  for (auto variable = environ; *variable; ++variable)
    all += std::string{"\n"} + *variable;
  std::ofstream{cfg.folder + "/rank_" + std::to_string(context.rank())} << all;
  std::printf("rank %d has begun\n", context.rank());
  auto tracker = start_tracking(context, {.project = "p"});
  tracker.log_params({{"lr", 0.1}});
  context.report({{"loss", 0.5}});
}

// Trackers on files, and one whose server is down and named with a password.
int run_with_trackers(const std::string& folder) {
  run_config run;
  run.name = "run";
  run.storage_path = folder + "/runs";
  run.worker_env = {{"MY_SERVICE_TOKEN", "asked for"}};
  using std::chrono::milliseconds;
  run.callbacks = {result_json_tracker(), tensorboard_tracker(),
                   wandb_tracker({.mode = wandb_mode::offline}),
                   comet_tracker({.mode = comet_mode::offline}),
                   mlflow_tracker({}, {.finish_timeout = milliseconds{5000},
                                       .failing_timeout = milliseconds{0}})};
  auto result = data_parallel_trainer{
    loop,
    config{folder},
    {.scaling = {.num_workers = 2},
     .run = run}}.fit();
  if (result.error)
    std::fprintf(stderr, "%s\n", result.error->message.c_str());
  return result.error ? 1 : 0;
}

} // namespace

TEST(secrets_test, no_secret_of_the_program_gets_into_ranks_files_or_output) {
  temporary_folder folder;
  auto server = "http://me:" + planted("PASSWORD") + "@127.0.0.1:1";
  std::string command = "env MLFLOW_TRACKING_URI='" + server + "'";
  for (std::string name : secrets)
    command += " " + name + "=" + planted(name);
  command += " /proc/" + std::to_string(::getpid()) + "/exe --run '"
             + folder.path().string() + "' > '" + (folder / "printed").string()
             + "' 2>&1";
  auto status = std::system(command.c_str());
  auto printed = bytes_of(folder / "printed");
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << printed;
  for (auto rank : {"rank_0", "rank_1"})
    EXPECT_THAT(bytes_of(folder / rank),
                HasSubstr("MY_SERVICE_TOKEN=asked for"));
  // All trackers did what they do.
  EXPECT_THAT(printed, HasSubstr("mlflow"));
  for (auto name : {"metrics.csv", "report.html", "result.json", "wandb",
                    "comet", "logs/rank_1.log"})
    EXPECT_TRUE(fs::exists(folder.path() / "runs/run" / name)) << name;
  // Ranks, the run's files and the output are all below this folder.
  std::vector<std::string> values{planted("PASSWORD")};
  for (std::string name : secrets)
    values.push_back(planted(name));
  for (auto& value : values)
    EXPECT_THAT(files_with(folder.path(), value), testing::IsEmpty()) << value;
}

} // namespace troupe::test

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  if (argc > 2 && std::string{argv[1]} == "--run")
    return troupe::test::run_with_trackers(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
