// The charts of a run, measured in Chromium.

#include <gmock/gmock.h>

#include "tests/peers/report_page/browser_fixture.hpp"

namespace troupe::internal::test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(browser_test, the_mean_of_the_ranks_is_drawn_where_the_axes_say) {
  drawn_chart chart{opened().dom, "loss"};
  ASSERT_TRUE(chart.exists());
  ASSERT_GE(chart.x_tick_count(), 2u);
  ASSERT_GE(chart.y_tick_count(), 3u);
  ASSERT_EQ(chart.curves().size(), 1u);
  auto curve = chart.curves()[0];
  ASSERT_EQ(curve.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i)
    expect_near(curve[i],
                {chart.x_of(static_cast<double>(i)), chart.y_of(loss(i) + 5)});
  EXPECT_EQ(chart.gaps(), 1u) << "the restart interrupts the line";
}

TEST_F(browser_test, the_band_reaches_from_the_lowest_to_the_highest_rank) {
  drawn_chart chart{opened().dom, "loss"};
  ASSERT_EQ(chart.bands().size(), 1u);
  auto band = chart.bands()[0];
  ASSERT_EQ(band.size(), 40u);
  for (std::size_t i = 0; i < 12; ++i) { // attempt 0: there and back
    auto x = chart.x_of(static_cast<double>(i));
    expect_near(band[i], {x, chart.y_of(loss(i) + 10)});
    expect_near(band[23 - i], {x, chart.y_of(loss(i))});
  }
  EXPECT_THAT(drawn_chart(opened().dom, "tiny").bands(), IsEmpty());
}

TEST_F(browser_test, checkpoints_and_restarts_are_marked_on_the_report_axis) {
  drawn_chart chart{opened().dom, "loss"};
  auto near = [&](double report) {
    return ::testing::DoubleNear(chart.x_of(report), pixel);
  };
  EXPECT_THAT(chart.marks("checkpoint"),
              ElementsAre(near(4), near(9), near(14)));
  EXPECT_THAT(chart.marks("checkpoint best"), ElementsAre(near(19)));
  EXPECT_THAT(chart.marks("restart"), ElementsAre(near(11.5)));
  EXPECT_THAT(chart.markup(), HasSubstr(">attempt 1<"));
}

TEST_F(browser_test, the_time_axis_places_everything_by_its_time) {
  auto page =
    open_and("document.querySelector('.over input[value=time]').click();");
  EXPECT_EQ(page.console, "");
  drawn_chart chart{page.dom, "loss"};
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  for (std::uint64_t i = 0; i < 20; ++i)
    expect_near(curve[i],
                {chart.x_of(row(i).seconds), chart.y_of(loss(i) + 5)});
  EXPECT_THAT(chart.marks("restart"),
              ElementsAre(::testing::DoubleNear(chart.x_of(15), pixel)));
  EXPECT_THAT(chart.marks("checkpoint best"),
              ElementsAre(::testing::DoubleNear(chart.x_of(25), pixel)));
}

TEST_F(browser_test, the_log_scale_places_values_by_their_logarithm) {
  auto page =
    open_and("document.querySelector('.scale input[value=log]').click();");
  EXPECT_EQ(page.console, "");
  drawn_chart chart{page.dom, "tiny"};
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  // Of three points the middle one distinguishes a logarithm from a line.
  auto share = (curve[10].y - curve[0].y) / (curve[19].y - curve[0].y);
  EXPECT_NEAR(
    share, std::log(loss(10) / loss(0)) / std::log(loss(19) / loss(0)), 0.01);
}

TEST_F(browser_test, the_largest_numbers_are_drawn_where_the_axes_say) {
  drawn_chart chart{opened().dom, "huge"};
  ASSERT_GE(chart.y_tick_count(), 3u);
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  EXPECT_GT(curve[0].y, curve[1].y + 50);
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(curve[i].y, chart.y_of(huge(i)), pixel);
}

TEST_F(browser_test, a_log_scale_reaches_from_the_smallest_to_the_largest) {
  auto page =
    open_and("document.querySelector('.scale input[value=log]').click();");
  EXPECT_EQ(page.console, "");
  auto curve = drawn_chart{page.dom, "wide"}.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  EXPECT_GT(curve[0].y, curve[19].y + 50);
  EXPECT_NEAR(curve[0].y - curve[10].y, (curve[0].y - curve[19].y) * 10 / 19,
              pixel);
}

TEST_F(browser_test, a_value_that_is_not_finite_is_marked_and_interrupts) {
  drawn_chart chart{opened().dom, "norm"};
  EXPECT_EQ(chart.gaps(), 2u);
  ASSERT_EQ(chart.marks("bad").size(), 1u);
  EXPECT_NEAR(chart.marks("bad")[0] + 4, chart.x_of(7), pixel);
}

TEST_F(browser_test, what_the_loop_logged_is_drawn_over_its_steps) {
  drawn_chart chart{opened().dom, "seen"};
  ASSERT_TRUE(chart.exists());
  auto curve = chart.curves().at(0);
  ASSERT_EQ(curve.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    auto x = static_cast<double>(i);
    expect_near(curve[i], {chart.x_of(10 * x), chart.y_of(2 * x)});
  }
  // Attempt 1 began between the times of steps 110 and 120.
  ASSERT_EQ(chart.marks("restart").size(), 1u);
  EXPECT_GT(chart.marks("restart")[0], chart.x_of(110));
  EXPECT_LT(chart.marks("restart")[0], chart.x_of(120));
}

TEST_F(browser_test, each_rank_has_its_own_step_time) {
  auto& dom = opened().dom;
  drawn_chart chart{dom, "Step time of each rank"};
  auto curves = chart.curves();
  ASSERT_EQ(curves.size(), 2u);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(curves[0].at(i).y, chart.y_of(0.25), pixel);
    EXPECT_NEAR(curves[1].at(i).y, chart.y_of(0.5), pixel);
  }
  EXPECT_THAT(chart.markup(), HasSubstr("rank 1<span>0.5 s</span>"));
  EXPECT_THAT(dom, HasSubstr("<td class=\"number\">250 ms</td>"));
}

TEST_F(browser_test, keys_read_the_values_of_a_curve) {
  auto page =
    open_and("const plot = document.querySelector('[data-name=loss] svg.plot');"
             "for (const key of ['Home', 'ArrowRight', 'ArrowRight'])"
             "  plot.dispatchEvent(new KeyboardEvent('keydown', { key }));");
  drawn_chart chart{page.dom, "loss"};
  EXPECT_THAT(chart.markup(), HasSubstr("<span class=\"value\">95</span>"));
  EXPECT_THAT(chart.markup(), HasSubstr("report 2 · 3 s · 90 to 100<"));
  EXPECT_THAT(page.dom,
              HasSubstr("loss: 95, report 2 · 3 s · 90 to 100</div>"));
  EXPECT_THAT(drawn_chart(page.dom, "tiny").markup(),
              HasSubstr("<span class=\"value\">0.0009</span>"))
    << "other charts follow";
}

TEST_F(browser_test, the_pointer_reads_the_values_below_it) {
  auto page =
    open_and("const plot = document.querySelector('[data-name=loss] svg.plot');"
             "const box = plot.getBoundingClientRect();"
             "plot.dispatchEvent(new PointerEvent('pointermove',"
             "  { clientX: box.right - 1, clientY: box.top + 50 }));");
  drawn_chart chart{page.dom, "loss"};
  EXPECT_THAT(chart.markup(), HasSubstr("report 19 · 25 s · 5 to 15<"));
  EXPECT_THAT(chart.markup(), HasSubstr("class=\"cursor\""));
}

} // namespace troupe::internal::test
