// Rank processes that train on a folder of images.

#include <gtest/gtest.h>
#include <troupe/runtime/fs.hpp>

#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/images/image_folder.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

namespace {

struct config {
  std::string folder;
  int fails_at = -1;

  TROUPE_FIELDS(folder, fails_at)
};

/// Reports the mean of each global batch, and saves the place.
void look_at_images(train_context& context, const config& cfg) {
  image_folder images{
    cfg.folder,
    {random_resized_crop(8), random_horizontal_flip(), to_float(),
     normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})}};
  auto loader = prepare_data_loader(
    context, images,
    {.batch_size = 2, .shuffle = true, .seed = 5, .workers = 2});
  int step = 0;
  train_state state{{"loader", loader}, {"step", step}};
  context.resume(state);
  for (auto& [pixels, labels] : loader) { // [2, 3, 8, 8] and [2]
    if (step == cfg.fails_at && context.attempt() == 0)
      throw std::runtime_error{"planned"};
    ++step;
    context.report({{"mean", pixels.mean().item<double>()},
                    {"labels", labels.sum().item<std::int64_t>()}},
                   state);
  }
}

} // namespace

TEST(image_run_test, a_restarted_run_sees_the_same_pictures) {
  temporary_folder storage;
  for (auto name : {"cat", "dog"})
    for (int i = 0; i < 6; ++i) {
      fs::create_directories(storage / "pictures" / name);
      fs::copy_file(fs::path{TROUPE_TEST_DATA} / "images/colors.png",
                    storage / "pictures" / name / (std::to_string(i) + ".png"));
    }
  auto run = [&](const std::string& name, int fails_at) {
    torch_options x;
    x.scaling = {.num_workers = 2};
    x.run.name = name;
    x.run.storage_path = storage / "runs";
    x.run.quiet = true;
    x.run.failure.max_failures = 1;
    auto result =
      torch_trainer{look_at_images,
                    config{(storage / "pictures").string(), fails_at}, x}
        .fit();
    EXPECT_FALSE(result.error) << result.error->message;
    return result.metrics_history().value();
  };
  auto whole = run("whole", -1);
  auto restarted = run("restarted", 2);
  ASSERT_EQ(whole.size(), 3u);
  ASSERT_EQ(restarted.size(), 3u);
  EXPECT_EQ(restarted.back().attempt, 1u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(restarted[i].values, whole[i].values);
    EXPECT_NE(whole[i].values[0].number("mean"),
              whole[i].values[1].number("mean"));
  }
}

} // namespace troupe::internal::test
