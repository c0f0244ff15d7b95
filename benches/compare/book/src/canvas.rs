//! The common parts of all plots: size, colours, text. The background is transparent, and all colours are readable on
//! white and on black.

use crate::axis::Axis;
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{EmptyElement, Text};
use plotters::prelude::{RGBColor, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, ShapeStyle, TextStyle};
use std::error::Error;

const WIDTH: u32 = 880;
const TITLE_HEIGHT: u32 = 40;
const MARGIN: u32 = 8;
const FONT: &str = "system-ui, Segoe UI, Helvetica, Arial, sans-serif";

pub const INK: RGBColor = RGBColor(0x80, 0x85, 0x8d);
pub const OURS: [RGBColor; 4] = [
    RGBColor(0x1a, 0x7f, 0xe0),
    RGBColor(0x56, 0xa8, 0xf5),
    RGBColor(0x5f, 0x66, 0xe0),
    RGBColor(0x8f, 0x95, 0xf2),
];
/// Colours for a rising series of up to three steps, such as numbers of threads or quantiles.
pub const STEPS: [RGBColor; 3] =
    [RGBColor(0x2f, 0x97, 0xd8), RGBColor(0xcc, 0x8a, 0x00), RGBColor(0xc6, 0x45, 0x11)];

type Plane = Cartesian2d<Axis, Axis>;
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Chart<'c, 'a> = ChartContext<'c, SVGBackend<'a>, Plane>;
/// The part of a chart inside the axes.
pub type Plotting<'a> = DrawingArea<SVGBackend<'a>, Plane>;
pub type Drawn = Result<(), Box<dyn Error>>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pen {
    pub colour: RGBColor,
    pub width: u32,
}

impl Pen {
    #[must_use]
    pub fn style(self) -> ShapeStyle {
        self.colour.stroke_width(self.width).filled()
    }

    /// Returns the style of the name beside a line. The name of a wide line is bold.
    #[must_use]
    pub fn text(self) -> TextStyle<'static> {
        if self.width > 2 { bold(12.0, self.colour, HPos::Left) } else { text(12.0, self.colour, HPos::Left) }
    }
}

/// Draws a plot with a title, and returns it as SVG text. `paint` draws the part below the title.
///
/// # Errors
/// Fails if the plot cannot be drawn.
pub fn draw(
    title: &str,
    height: u32,
    paint: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (WIDTH, TITLE_HEIGHT + height + MARGIN)).into_drawing_area();
        let (head, body) = area.margin(0, MARGIN, 0, 0).split_vertically(TITLE_HEIGHT);
        head.draw_text(title, &bold(16.0, INK, HPos::Left), (8, 20))?;
        paint(&body)?;
        area.present()?;
    }
    Ok(svg)
}

/// Draws axes, and a line at each tick.
///
/// # Errors
/// Fails if the chart cannot be drawn.
pub fn mesh(chart: &mut Chart<'_, '_>, x_title: &str) -> Drawn {
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(INK.mix(0.6)).bold_line_style(INK.mix(0.25)).light_line_style(INK.mix(0.1));
    mesh.label_style(text(12.0, INK, HPos::Center)).set_all_tick_mark_size(4);
    mesh.x_desc(x_title).draw()?;
    Ok(())
}

/// Draws a text at a distance in pixels from a point of a plot.
///
/// # Errors
/// Fails if the text cannot be drawn.
pub fn label(
    area: &Plotting<'_>,
    at: (f64, f64),
    offset: (i32, i32),
    label: &str,
    style: TextStyle<'static>,
) -> Drawn {
    area.draw(&(EmptyElement::at(at) + Text::new(label.to_owned(), offset, style)))?;
    Ok(())
}

/// Returns a text style. `place` says whether the text stands before its point, behind its point, or around it.
#[must_use]
pub fn text(pixels: f64, colour: RGBColor, place: HPos) -> TextStyle<'static> {
    styled(FontStyle::Normal, pixels, colour, place)
}

#[must_use]
pub fn bold(pixels: f64, colour: RGBColor, place: HPos) -> TextStyle<'static> {
    styled(FontStyle::Bold, pixels, colour, place)
}

/// Returns the style of a contestant's name. Our names are bold.
#[must_use]
pub fn name(is_ours: bool, place: HPos) -> TextStyle<'static> {
    if is_ours { bold(12.0, OURS[0], place) } else { text(12.0, INK, place) }
}

fn styled(style: FontStyle, pixels: f64, colour: RGBColor, place: HPos) -> TextStyle<'static> {
    // The backend divides by the same factor.
    FontDesc::new(FontFamily::Name(FONT), pixels * 1.24, style)
        .color(&colour)
        .pos(Pos::new(place, VPos::Center))
}

/// Converts a number of pixels or rows to 32 bits. The number is always small enough.
#[must_use]
pub fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
