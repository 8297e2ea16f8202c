//! The clip that is played: Motion JPEG that ffmpeg makes of its own test pictures.

use std::process::Command;

/// Frames of a clip.
pub struct Clip {
    /// Each frame is a JPEG file. Players repeat the clip from its start.
    pub frames: Vec<Vec<u8>>,
    /// Width and height, in pixels.
    pub size: (u32, u32),
}

/// Test pictures with noise like a camera's, then the Mandelbrot set. So costs differ by frame and
/// by scene. The code replaces `SIZE`.
const SCENES: [&str; 2] =
    ["testsrc2=size=SIZE:rate=30,noise=alls=15:allf=t", "mandelbrot=size=SIZE:rate=30"];
const FRAMES_OF_A_SCENE: usize = 60;
/// Widths and heights in pixels. A faster machine gets larger pictures, so that a frame takes 2 to
/// 4 ms.
pub const SIZES: [(u32, u32); 3] = [(640, 480), (960, 720), (1280, 960)];

impl Clip {
    /// Makes the clip. Blocks for some seconds.
    ///
    /// # Errors
    /// The reason in one line: ffmpeg (Debian's package `ffmpeg`) is missing, or it failed.
    pub fn make(size: (u32, u32)) -> Result<Clip, String> {
        let (width, height) = size;
        let mut frames = Vec::new();
        for scene in SCENES {
            let mut command = Command::new("ffmpeg");
            command.args(["-nostdin", "-v", "error", "-f", "lavfi", "-i"]);
            command.arg(scene.replace("SIZE", &format!("{width}x{height}")));
            command.args(["-frames:v", &FRAMES_OF_A_SCENE.to_string()]);
            command.args(["-c:v", "mjpeg", "-q:v", "5", "-f", "mjpeg", "-"]);
            let output = command
                .output()
                .map_err(|error| format!("ffmpeg: {error} (it is in Debian's package ffmpeg)"))?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
            }
            let pictures = pictures(&output.stdout);
            if pictures.len() != FRAMES_OF_A_SCENE {
                let found = pictures.len();
                return Err(format!(
                    "{scene}: found {found} pictures, expected {FRAMES_OF_A_SCENE}"
                ));
            }
            frames.extend(pictures);
        }
        Ok(Clip { frames, size })
    }

    /// Bytes of the longest frame.
    pub fn bytes_max(&self) -> usize {
        self.frames.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// Splits `stream` into the JPEG files that follow each other in it. Inside a file, a byte of ones
/// is followed by 0 or a restart marker (ITU T.81 §B.1.1.5). So the next start of an image after an
/// end belongs to the next file.
fn pictures(stream: &[u8]) -> Vec<Vec<u8>> {
    const END_THEN_START: [u8; 4] = [0xff, 0xd9, 0xff, 0xd8];
    let mut starts = vec![0];
    let seams = stream.windows(4).enumerate().filter(|(_, bytes)| *bytes == END_THEN_START);
    starts.extend(seams.map(|(at, _)| at + 2));
    let ends = starts.iter().skip(1).copied().chain([stream.len()]);
    starts.iter().zip(ends).map(|(&start, end)| stream[start..end].to_vec()).collect()
}
