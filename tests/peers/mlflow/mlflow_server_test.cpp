#include <cstdlib>
#include <thread>

#include <gmock/gmock.h>

#include "tests/peers/mlflow/mlflow_fixture.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;
using kind = sink_failure::kind;

constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
constexpr auto inf = std::numeric_limits<double>::infinity();

class mlflow_server_test : public mlflow_fixture {
protected:
  void SetUp() override { TROUPE_NEEDS_PEERS(); }

  mlflow_sink to_server(mlflow_options options = {}) {
    options.tracking_uri = shared_mlflow().url();
    return mlflow_sink{options};
  }

  std::string asked_server(const sink& x, const std::string& script) {
    return asked(shared_mlflow().url(), run_id(x), script);
  }
};

TEST_F(mlflow_server_test, shows_params_tags_and_every_point_of_every_curve) {
  auto x = to_server({.tags = {{"team", "blue"}}});
  ASSERT_TRUE(x.check(run));
  ASSERT_EQ(said(x.start(run, "")), "");
  std::vector<tracker_record> records;
  for (std::uint64_t i = 0; i < 3; ++i)
    records.push_back(row(i, {{"loss", 1.0 / (1 << i)}, {"val/acc@1", 0.5}}));
  ASSERT_EQ(said(x.log(records)), "");
  ASSERT_EQ(
    said(x.finish(run_status_kind::finished, begin + std::chrono::seconds{9})),
    "");
  EXPECT_EQ(asked_server(x, R"(
i = run.info
print(client.get_experiment(i.experiment_id).name)
print(i.run_name, i.status, i.start_time, i.end_time, i.user_id)
print(sorted(run.data.params.items()))
t = run.data.tags
for k in ('team', 'troupe.version', 'troupe.attempt', 'troupe.host',
          'mlflow.user', 'mlflow.source.name', 'mlflow.source.type',
          'troupe.name.val/acc_1'):
  print(k, t[k])
print(points('loss'))
print(points('val/acc_1'))
)"),
            run.experiment + R"(
a run FINISHED 1700000000000 1700000009000 me
[('layers', '3'), ('lr', '0.1'), ('optimizer/name', 'adam')]
team blue
troupe.version 0.1.0
troupe.attempt 0
troupe.host here
mlflow.user me
mlflow.source.name train
mlflow.source.type LOCAL
troupe.name.val/acc_1 val/acc@1
[(0, 1.0, 1700000000000), (1, 0.5, 1700000001000), (2, 0.25, 1700000002000)]
[(0, 0.5, 1700000000000), (1, 0.5, 1700000001000), (2, 0.5, 1700000002000)]
)");
}

TEST_F(mlflow_server_test, keeps_values_of_every_kind) {
  auto x = to_server();
  ASSERT_EQ(said(x.start(run, "")), "");
  const std::int64_t far = (std::int64_t{1} << 62) + 1;
  std::vector<tracker_record> records{
    value(1, {{"nan", nan},
              {"inf", inf},
              {"minus", -inf},
              {"int", (std::int64_t{1} << 53) + 2},
              {"true", true},
              {"double", 0.1},
              {"text", "first"},
              {"a \xC3\xA4/b", 1.5},
              {std::string(300, 'n'), 2}}),
    value(2, {{"text", "second"}})};
  records[1].content = logged_metrics{far, {{"text", "second"}, {"far", 1}}};
  ASSERT_EQ(said(x.log(records)), "");
  EXPECT_EQ(asked_server(x, R"(
d = run.data
for k in ('nan', 'inf', 'minus', 'int', 'true', 'double', 'a ä/b'):
  print(k, d.metrics[k])
print(d.tags['text'], points('far')[0][0])
print([(len(k), v) for k, v in d.metrics.items() if len(k) > 100])
)"),
            "nan nan\ninf 1.7976931348623157e+308\n"
            "minus -1.7976931348623157e+308\nint 9007199254740994.0\n"
            "true 1.0\ndouble 0.1\na \xC3\xA4/b 1.5\nsecond "
            "4611686018427387905\n[(250, 2.0)]\n");
}

TEST_F(mlflow_server_test, splits_what_is_too_much_for_one_request) {
  auto x = to_server();
  for (int i = 0; i < 205; ++i)
    run.config["p" + std::to_string(i)] = i;
  ASSERT_EQ(said(x.start(run, "")), "");
  metrics values;
  for (int i = 0; i < 1100; ++i)
    values["m" + std::to_string(i)] = i;
  for (int i = 0; i < 150; ++i)
    values["t" + std::to_string(i)] = std::string(6000, 'x');
  std::vector<tracker_record> records{value(1, values)};
  ASSERT_EQ(said(x.log(records)), "");
  EXPECT_EQ(asked_server(x, R"(
d = run.data
print(len(d.params), len(d.metrics))
print(len([k for k in d.tags if k.startswith('t') and len(d.tags[k]) == 5000]))
print(d.tags['t0'][-9:])
)"),
            "208 1100\n150\n... [cut]\n");
}

TEST_F(mlflow_server_test, has_each_point_once_after_a_batch_was_repeated) {
  auto x = to_server();
  ASSERT_EQ(said(x.start(run, "")), "");
  std::vector<tracker_record> records{row(0, {{"a", nan}, {"b", 1}}),
                                      row(1, {{"a", 2}, {"b", inf}})};
  ASSERT_EQ(said(x.log(records)), "");
  ASSERT_EQ(said(x.log(records)), "");
  EXPECT_EQ(asked_server(x, "print(len(points('a')), len(points('b')))"),
            "2 2\n");
}

TEST_F(mlflow_server_test, continues_its_run_in_another_process) {
  auto first = to_server();
  ASSERT_EQ(said(first.start(run, "")), "");
  std::vector<tracker_record> records{row(0, {{"loss", 1}})};
  ASSERT_EQ(said(first.log(records)), "");
  ASSERT_EQ(said(first.finish(run_status_kind::errored, begin)), "");
  EXPECT_EQ(asked_server(first, "print(run.info.status)"), "FAILED\n");

  auto second = sink_from_json<mlflow_sink>(to_server().options());
  run.config["lr"] = 0.2;
  run.config["extra"] = 1;
  run.attempt = 4;
  ASSERT_EQ(said(second->start(run, first.state())), "");
  EXPECT_EQ(run_id(*second), run_id(first));
  EXPECT_EQ(asked_server(*second, "print(run.info.status)"), "RUNNING\n");
  records = {row(1, {{"loss", 2}})};
  ASSERT_EQ(said(second->log(records)), "");
  ASSERT_EQ(said(second->finish(run_status_kind::aborted, begin)), "");
  EXPECT_EQ(asked_server(*second, R"(
print(run.info.status, run.data.params['lr'], run.data.params['extra'])
print(run.data.tags['troupe.param_changed.lr'], run.data.tags['troupe.attempt'])
print([p[:2] for p in points('loss')])
)"),
            "KILLED 0.1 1\n0.2 4\n[(0, 1.0), (1, 2.0)]\n");
}

TEST_F(mlflow_server_test, finds_its_run_when_the_reply_was_lost) {
  auto first = to_server();
  ASSERT_EQ(said(first.start(run, "")), "");
  auto second = to_server();
  ASSERT_EQ(said(second.start(run, "")), "");
  EXPECT_EQ(run_id(second), run_id(first));
}

TEST_F(mlflow_server_test, replaces_a_run_that_was_deleted) {
  auto x = to_server();
  ASSERT_EQ(said(x.start(run, "")), "");
  auto old = run_id(x);
  auto state = x.state();
  asked_server(x, "client.delete_run(sys.argv[2])");

  // While it logs: the next attempt goes to the new one.
  std::vector<tracker_record> records{row(0, {{"loss", 1}})};
  auto failed = x.log(records);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_THAT(said(failed), HasSubstr(old));
  ASSERT_EQ(said(x.log(records)), "");
  EXPECT_NE(run_id(x), old);
  EXPECT_EQ(asked_server(x, "print(run.data.tags['troupe.replaces'],"
                            " run.data.params['lr'], len(points('loss')))"),
            old + " 0.1 1\n");

  // From an old state: the new one is found.
  auto later = to_server();
  ASSERT_EQ(said(later.start(run, state)), "");
  EXPECT_EQ(run_id(later), run_id(x));
}

TEST_F(mlflow_server_test,
       two_runs_that_create_one_experiment_at_once_share_it) {
  std::vector<std::string> ids(4);
  std::vector<std::string> sentences(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ids.size(); ++i)
    threads.emplace_back([&, i] {
      auto own = run;
      own.id.replace(0, 2, "f" + std::to_string(i));
      auto x = to_server();
      sentences[i] = said(x.start(own, ""));
      ids[i] = run_id(x);
    });
  for (auto& x : threads)
    x.join();
  EXPECT_THAT(sentences, testing::Each(""));
  auto x = to_server();
  ASSERT_EQ(said(x.start(run, "")), "");
  EXPECT_EQ(asked_server(x, R"(
print(len(client.search_runs([run.info.experiment_id])))
print(len(client.search_experiments(filter_string="name = '%s'" %
  client.get_experiment(run.info.experiment_id).name)))
)"),
            "5\n1\n");
}

TEST_F(mlflow_server_test, refuses_a_deleted_experiment_and_a_missing_id) {
  auto x = to_server();
  ASSERT_EQ(said(x.start(run, "")), "");
  asked_server(x, "client.delete_experiment(run.info.experiment_id)");
  auto again = to_server();
  run.id[0] = 'e';
  auto failed = again.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_THAT(said(failed), HasSubstr("is deleted"));
  auto by_id = to_server({.experiment_id = "987654"});
  failed = by_id.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_THAT(said(failed), HasSubstr("987654"));
}

TEST_F(mlflow_server_test,
       logs_to_an_experiment_by_id_and_to_a_run_of_mlflows) {
  auto made = to_server();
  ASSERT_EQ(said(made.start(run, "")), "");
  auto experiment = asked_server(made, "print(run.info.experiment_id)");
  experiment.pop_back();
  run.id[0] = 'e';
  auto other = to_server({.experiment_id = experiment, .run_name = "mine"});
  ASSERT_EQ(said(other.start(run, "")), "");
  EXPECT_EQ(
    asked_server(other, "print(run.info.experiment_id, run.info.run_name)"),
    experiment + " mine\n");
  run.id[0] = 'd';
  auto same = to_server({.run_id = run_id(other)});
  ASSERT_EQ(said(same.start(run, "")), "");
  EXPECT_EQ(run_id(same), run_id(other));
  auto none = to_server({.run_id = std::string(32, '0')});
  auto failed = none.start(run, "");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
}

TEST_F(mlflow_server_test, keeps_artifacts) {
  auto x = to_server({.upload_checkpoints = true});
  ASSERT_EQ(said(x.start(run, "")), "");
  fs::create_directories(folder / "a folder/sub");
  write_bytes(folder / "a folder/empty", "");
  write_bytes(folder / "a folder/sub/with blank #1.txt", "inner");
  write_bytes(folder / "one.bin", std::string(2'000'000, 'x'));
  write_bytes(folder / "image.png", "not looked into");
  auto checkpoint = run.path / "checkpoints" / "checkpoint_1";
  fs::create_directories(checkpoint);
  write_bytes(checkpoint / "model", "weights");
  auto text =
    to_json(manifest{.run_name = "r", .name = "checkpoint_1", .index = 1});
  write_bytes(checkpoint / "manifest.json", text);
  auto report = row(1, {{"loss", 1}});
  std::get<journaled_batch>(report.content).checkpoint = "checkpoint_1";
  std::vector<tracker_record> records{
    record(1, logged_artifact{folder / "a folder", "things"}),
    record(2, logged_artifact{folder / "one.bin", "../one.bin"}),
    record(3, logged_text{7, "note", "hello"}),
    record(
      4,
      logged_image{.step = 5, .name = "val/x", .file = folder / "image.png"}),
    record(
      5,
      logged_histogram{.step = 6, .name = "w", .limits = {1}, .counts = {2}}),
    report};
  ASSERT_EQ(said(x.log(records)), "");
  ASSERT_EQ(said(x.log(records)), "") << "a repeat overwrites";
  EXPECT_EQ(
    asked_server(x, R"(
import os
root = mlflow.artifacts.download_artifacts(run_id=sys.argv[2])
for folder, _, names in sorted(os.walk(root)):
  for name in sorted(names):
    path = os.path.join(folder, name)
    print(os.path.relpath(path, root), os.path.getsize(path))
print(open(os.path.join(root, 'texts/note/7.txt')).read())
print(run.data.tags['mlflow.loggedImages'], run.data.tags['troupe.checkpoint'])
)"),
    "__/one.bin 2000000\n"
    "checkpoints/checkpoint_1/manifest.json "
      + std::to_string(text.size())
      + "\n"
        "checkpoints/checkpoint_1/model 7\n"
        "histograms/w/6.json 148\n"
        "images/val_x+step+5+timestamp+1700000004000+00000000-0000-4000-"
        "8000-0000000001f4.png 15\n"
        "texts/note/7.txt 5\n"
        "things/empty 0\n"
        "things/sub/with blank _1.txt 5\n"
        "hello\nTrue "
      + checkpoint.string() + "\n");
}

TEST_F(mlflow_server_test, loses_nothing_when_the_server_is_killed) {
  peer_server server{mlflow_server_options()};
  mlflow_sink x{{.tracking_uri = server.url()}};
  ASSERT_EQ(said(x.start(run, "")), "");
  std::vector<tracker_record> first{row(0, {{"loss", 0}}),
                                    row(1, {{"loss", 1}})};
  ASSERT_EQ(said(x.log(first)), "");
  server.kill();
  std::vector<tracker_record> second{row(1, {{"loss", 1}}),
                                     row(2, {{"loss", 2}})};
  auto failed = x.log(second);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::transient);
  EXPECT_EQ(failed.error().accepted, 0u);
  server.restart();
  ASSERT_EQ(said(x.log(second)), "");
  EXPECT_EQ(
    asked(server.url(), run_id(x), "print([p[:2] for p in points('loss')])"),
    "[(0, 0.0), (1, 1.0), (2, 2.0)]\n");
}

TEST_F(mlflow_server_test, writes_artifacts_to_a_shared_file_system) {
  temporary_folder shared;
  peer_server server{
    mlflow_server_options({"--no-serve-artifacts", "--default-artifact-root",
                           "file://" + shared.path().string() + "/art"})};
  mlflow_sink x{{.tracking_uri = server.url()}};
  ASSERT_EQ(said(x.start(run, "")), "");
  std::vector<tracker_record> records{record(1, logged_text{1, "t", "hello"})};
  ASSERT_EQ(said(x.log(records)), "");
  EXPECT_EQ(asked(server.url(), run_id(x),
                  "print(mlflow.artifacts.load_text(run.info.artifact_uri"
                  " + '/texts/t/1.txt'))"),
            "hello\n");
}

TEST_F(mlflow_server_test, says_what_is_wrong_with_credentials) {
  temporary_folder auth;
  write_bytes(auth / "auth.ini",
              "[mlflow]\ndefault_permission = READ\n"
              "database_uri = sqlite:///"
                + (auth / "auth.db").string()
                + "\nadmin_username = admin\nadmin_password = "
                  "password-of-admin\nauthorization_function = "
                  "mlflow.server.auth:authenticate_request_basic_auth\n");
  peer_server server{mlflow_server_options(
    {"--app-name", "basic-auth", "--artifacts-destination", "{home}/art"},
    {{"MLFLOW_AUTH_CONFIG_PATH", (auth / "auth.ini").string()},
     {"MLFLOW_FLASK_SERVER_SECRET_KEY", "x"}})};
  ::setenv("MLFLOW_TRACKING_USERNAME", "admin", 1);
  for (const auto* password : {"", "planted-wrong"}) {
    ::setenv("MLFLOW_TRACKING_PASSWORD", password, 1);
    mlflow_sink x{{.tracking_uri = server.url()}};
    auto failed = x.start(run, "");
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, kind::permanent);
    EXPECT_THAT(said(failed), HasSubstr("MLFLOW_TRACKING_PASSWORD"));
    EXPECT_THAT(said(failed), HasSubstr("401"));
    EXPECT_EQ(said(failed).find("planted"), std::string::npos);
  }
  ::setenv("MLFLOW_TRACKING_PASSWORD", "password-of-admin", 1);
  mlflow_sink x{{.tracking_uri = server.url()}};
  EXPECT_EQ(said(x.start(run, "")), "");
  EXPECT_EQ(x.state().find("password-of-admin"), std::string::npos);
  EXPECT_EQ(x.options().find("password-of-admin"), std::string::npos);
  auto made = run_peer_script(
    "import sys\n"
    "from mlflow.server import get_app_client\n"
    "c = get_app_client('basic-auth', tracking_uri=sys.argv[1])\n"
    "c.create_user('reader', 'password-of-reader')\n",
    {server.url()},
    {{"MLFLOW_TRACKING_USERNAME", "admin"},
     {"MLFLOW_TRACKING_PASSWORD", "password-of-admin"}});
  ASSERT_EQ(made.exit_code, 0) << made.output;
  ::setenv("MLFLOW_TRACKING_USERNAME", "reader", 1);
  ::setenv("MLFLOW_TRACKING_PASSWORD", "password-of-reader", 1);
  run.id[0] = 'e';
  mlflow_sink reader{{.tracking_uri = server.url()}};
  auto failed = reader.start(run, "");
  ::unsetenv("MLFLOW_TRACKING_USERNAME");
  ::unsetenv("MLFLOW_TRACKING_PASSWORD");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, kind::permanent);
  EXPECT_THAT(said(failed), HasSubstr("403"));
  EXPECT_THAT(said(failed), HasSubstr("not allowed to do this"));
}

} // namespace
} // namespace troupe::internal::test
