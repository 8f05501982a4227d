// Plans: declarations, shapes and documentation.

#include "absl/status/status.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_gc {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ScalarShape;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status FollowPlanShape(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Scalar());
  ShapeHandle scalar;
  for (int i = 0; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &scalar));
  }
  return absl::OkStatus();
}

absl::Status ChangePlanShape(InferenceContext* c) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &shape));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &shape));
  return c->WithRank(c->input(2), 1, &shape);
}

absl::Status ReadPlanShape(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) {
    c->set_output(i, c->Vector(InferenceContext::kUnknownDim));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("TfGc>Timeline")
    .Attr("size: int >= 1")
    .Output("timeline: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(
Makes what the plans of one optimizer have in common. It lives as long as its
handle and their plans.

size: Of how many steps it knows when they have begun.
timeline: Handle for Plan.
)");

REGISTER_OP("TfGc>Plan")
    .Attr("keeps_residuals: list(bool)")
    .Attr("has_units: list(bool)")
    .Attr("delivers_late: list(bool)")
    .Attr("buckets: int >= 1")
    .Attr("start_step: int >= 0 = 0")
    .Attr("squares: bool = false")
    .Input("timeline: resource")
    .Output("plan: resource")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"(
Makes a plan: which of several systems each bucket has. At first it is the first
one, and systems are being tried. It lives as long as its handle.

timeline: Handle from Timeline.
plan: Handle for the other ops of plans.
keeps_residuals: Of each system, whether something may wait after a step.
has_units: Of each, whether it compresses in units of the second moment.
delivers_late: Of each, whether values wait for several steps, and come in spikes.
buckets: Number of buckets.
start_step: Before this step nothing is chosen, and no report is due.
squares: Whether the optimizer squares gradients.
)");

REGISTER_OP("TfGc>FollowPlan")
    .Attr("N: int >= 1")
    .Input("plan: resource")
    .Input("step: int64")
    .Input("clean_versions: N * int64")
    .Output("choices: N * int32")
    .Output("has_units: N * bool")
    .Output("shares_second_moment: N * bool")
    .Output("has_fresh_units: N * bool")
    .Output("delivers_all: N * bool")
    .Output("residuals_versions: N * int64")
    .Output("second_moments_age: int64")
    .Output("ratio: float")
    .Output("measures_links: bool")
    .Output("reports: bool")
    .Output("wants_gain: bool")
    .SetIsStateful()
    .SetShapeFn(FollowPlanShape)
    .Doc(R"(
Begins a step: notes when, and says what the plan is.

plan: Handle from Plan.
step: A scalar, 0 before the optimizer's first; the same on all workers.
clean_versions: Of each bucket, of which residuals_version it is known that
  nothing waits on any worker; 0 for none.
choices: Of each bucket, the index of its system.
has_units: Of each, whether its system compresses in units.
shares_second_moment: Of each, whether optimizers should not square what it
  delivers: its system delivers late, or one of all does and systems are being
  tried, or something may have waited, which it delivers.
has_fresh_units: Of each, whether units follow the gradients soon.
delivers_all: Of each, whether it is not compressed, and residuals may wait.
residuals_versions: Of each, another number after each step that may have left
  something in residuals: with a system that keeps some, with another plan of the
  timeline, and after residuals were restored. Never 0.
second_moments_age: How many of the plan's steps ago second moments were used
  last, by a system that compresses in units or by the optimizer; 1 if it is not
  known.
ratio: That of systems without one of their own.
measures_links: Whether the step measures the links.
reports: Whether the step exchanges reports.
wants_gain: Whether gains are to be measured in this step.
)");

REGISTER_OP("TfGc>ChangePlan")
    .Input("plan: resource")
    .Input("step: int64")
    .Input("decision: double")
    .SetIsStateful()
    .SetShapeFn(ChangePlanShape)
    .Doc(R"(
Changes the plan from the next step on.

plan: Handle from Plan.
step: A scalar, that of the reports which brought the decision.
decision: A vector: how many steps there are to the next reports; whether
  residuals were restored, whether nothing is being tried, whether gains are wanted
  with the next reports, and whether links are measured often, each 1 or 0; the
  ratio; and of each bucket the index of its system.
)");

REGISTER_OP("TfGc>ReadPlan")
    .Input("plan: resource")
    .Output("choices: int32")
    .Output("times: double")
    .Output("optimizer_times: double")
    .SetIsStateful()
    .SetShapeFn(ReadPlanShape)
    .Doc(R"(
Reads a plan.

plan: Handle from Plan.
choices: Of each bucket, the index of its system.
times: When steps with this plan have begun, in seconds, that of step s at s mod
  size; 0 for unknown.
optimizer_times: The same with all plans of the timeline.
)");

}  // namespace tf_gc
